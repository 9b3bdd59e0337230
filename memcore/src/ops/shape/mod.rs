//! Views and copies in another shape or order; tensors joined and split.

pub(in crate::ops) mod flip;
pub(in crate::ops) mod join;
pub(in crate::ops) mod pixel_shuffle;
pub(in crate::ops) mod roll;
pub(in crate::ops) mod strided;
pub(in crate::ops) mod view;

pub use flip::{flip, rot90};
pub use join::{cat, chunk, split, split_with_sizes, stack, unbind};
pub use pixel_shuffle::{pixel_shuffle, pixel_unshuffle};
pub use roll::roll;
pub use strided::{diag_embed, diagonal, unfold_axis};
pub use view::{
    alias, clone, contiguous, expand, flatten, narrow, permute, repeat, reshape, select, slice, squeeze, t, transpose,
    unsqueeze, view,
};
