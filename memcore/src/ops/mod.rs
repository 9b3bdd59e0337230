//! Operators: forward, what is saved, and backward, side by side.
//!
//! Each saves exactly what PyTorch's operator saves, and makes its temporaries in the same order (under a PyTorch profile; see
//! [`Profile`](crate::profile::Profile)). Every function takes tensors by reference, returns a new one and names itself to the ledger.
//!
//! A temporary of a Rust expression lives until the end of its *statement*: write one operator per statement where it matters
//! when an intermediate value is freed, as in Python.

mod activation;
mod conv;
mod loss;
mod matmul;
mod shape;
mod softmax;

pub use activation::{gelu, gelu_tanh, leaky_relu, relu, sigmoid, silu, tanh};
pub use conv::conv2d;
pub use loss::{IGNORE_INDEX, cross_entropy, mse_loss, nll_loss};
pub use matmul::{addmm, bmm, linear, mm};
pub use shape::{flatten, narrow, permute, reshape, select, t, transpose, view};
pub use softmax::{log_softmax, softmax};
