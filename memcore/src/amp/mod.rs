//! Mixed precision: products in a 16-bit type while parameters and sums stay in float32.
//!
//! Like PyTorch's `torch.autocast` and `torch.amp.GradScaler`, in what they compute and in what they keep.

mod scaler;

pub use scaler::{GradScaler, GradScalerOptions};

pub use crate::autograd::Autocast;
