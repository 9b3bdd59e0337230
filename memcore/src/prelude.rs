//! The names that most programs on memcore need: `use memcore::prelude::*`.

pub use crate::array::Array;
pub use crate::autograd::{NoGrad, Tensor};
pub use crate::device::Device;
pub use crate::dtype::DType;
pub use crate::error::{Error, Result};
pub use crate::memory::{Category, Event};
pub use crate::nn::{Init, Module, Parameter};
pub use crate::ops::{self, Reduction};
pub use crate::optim::Optimizer;
pub use crate::profile::Profile;
