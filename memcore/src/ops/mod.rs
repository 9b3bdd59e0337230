//! Operators: forward, saved values and backward, side by side.
//!
//! Each operator saves exactly what PyTorch's operator saves, and makes its temporaries in the same order (under a PyTorch profile; see
//! [`Profile`](crate::profile::Profile)). Operators of one tensor are methods of [`Tensor`](crate::Tensor) as well. Every function takes tensors by
//! reference, returns a new one, and gives its name to the ledger.
//!
//! A temporary of a Rust expression lives until the end of its *statement*. As in Python, write one operator per statement if it matters
//! when an intermediate value is freed.

mod attention;
mod autocast;
mod conv;
mod index;
mod liger;
mod loss;
mod methods;
mod norm;
mod on_host;
mod pointwise;
mod pool;
mod predicted;
mod products;
mod quantized;
mod recurrent;
mod reduce;
mod resample;
mod shape;
mod spectral;

pub use crate::backend::kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
pub use attention::*;
pub use conv::*;
pub use index::*;
pub use liger::*;
pub use loss::*;
pub use norm::*;
pub use pointwise::*;
pub use pool::*;
pub use products::*;
pub use quantized::*;
pub use recurrent::*;
pub use reduce::*;
pub use resample::*;
pub use shape::*;
pub use spectral::*;
