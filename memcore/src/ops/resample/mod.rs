//! Pictures at other sizes: interpolation, sampling at points, borders.

pub(in crate::ops) mod grid_sample;
pub(in crate::ops) mod interpolate;
pub(in crate::ops) mod pad;
pub(in crate::ops) mod pad_edges;
pub(in crate::ops) mod upsample_nearest;

pub use grid_sample::{affine_grid, grid_sampler};
pub use interpolate::{Interpolation, ResizedAxis, interpolate};
pub use pad::pad;
pub use pad_edges::{Edge, pad_edges};
pub use upsample_nearest::upsample_nearest2d;
