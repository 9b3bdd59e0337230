//! Layer, root-mean-square and batch normalisation, and their gradients.

mod batch;
mod rows;

pub(crate) use batch::{batch_norm, batch_norm_grad};
pub(crate) use rows::{layer_norm, layer_norm_grad, rms_norm, rms_norm_grad};
