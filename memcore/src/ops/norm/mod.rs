//! Normalization of rows, batches and groups; softmax.

pub(in crate::ops) mod batch;
pub(in crate::ops) mod batch_cudnn;
pub(in crate::ops) mod batch_kernels;
pub(in crate::ops) mod group;
pub(in crate::ops) mod instance;
pub(in crate::ops) mod rows;
pub(in crate::ops) mod softmax;

pub use batch::batch_norm;
pub use batch_kernels::{BatchNormOptions, RunningStats};
pub use group::group_norm;
pub use instance::instance_norm;
pub use rows::{layer_norm, rms_norm};
pub use softmax::{log_softmax, log_softmax_as, softmax, softmax_as};
