//! Convolutions of one, two and three dimensions, transposed ones, unfolding.

pub(in crate::ops) mod algorithm;
pub(in crate::ops) mod conv2d;
pub(in crate::ops) mod conv3d;
pub(in crate::ops) mod fold;
pub(in crate::ops) mod library;
pub(in crate::ops) mod one_dimension;
pub(in crate::ops) mod record;
pub(in crate::ops) mod transpose2d;
pub(in crate::ops) mod transpose3d;
pub(in crate::ops) mod transposed_size;
pub(in crate::ops) mod weight_norm;

pub use conv2d::conv2d;
pub use conv3d::{Conv3dGeometry, conv3d};
pub use fold::{fold, unfold};
pub use one_dimension::{
    Conv1dGeometry, Pool1dGeometry, adaptive_avg_pool1d, avg_pool1d, conv_transpose1d, conv1d, max_pool1d,
};
pub use transpose2d::conv_transpose2d;
pub use transpose3d::conv_transpose3d;
pub use weight_norm::weight_norm;
