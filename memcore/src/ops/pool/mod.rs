//! Pooling: the mean or the maximum of windows, and its reverse.

pub(in crate::ops) mod ceil_mode;
pub(in crate::ops) mod pool2d;
pub(in crate::ops) mod pool3d;
pub(in crate::ops) mod unpool;

pub use ceil_mode::max_pool2d_ceil;
pub use pool2d::{adaptive_avg_pool2d, avg_pool2d, max_pool2d, max_pool2d_with_indices};
pub use pool3d::{Pool3dGeometry, adaptive_avg_pool3d, adaptive_max_pool, avg_pool3d, max_pool3d};
pub use unpool::max_unpool2d;
