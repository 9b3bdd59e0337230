//! What a model consists of besides its modules: contents that are converted, and tensors that are not trained.

use super::parameter::Parameter;
use super::quantized::QuantizedWeight;
use crate::array::Array;
use crate::dtype::DType;

/// Contents of a model that is converted to another type; each list is in order of creation.
#[derive(Default)]
#[doc(hidden)]
pub struct Converted {
    /// [`Init::parameters`](super::Init::parameters)
    pub parameters: Vec<Parameter>,
    /// [`Init::buffers`](super::Init::buffers)
    pub buffers: Vec<(String, Array)>,
    /// [`Init::constants`](super::Init::constants)
    pub constants: Vec<Array>,
    /// Buffers that are neither saved nor converted, and weights of bitsandbytes.
    pub(super) plain: Vec<Array>,
    pub(super) quantized: Vec<QuantizedWeight>,
}

impl Converted {
    /// The contents of a model without weights of bitsandbytes.
    pub fn from_lists(parameters: Vec<Parameter>, buffers: Vec<(String, Array)>, constants: Vec<Array>) -> Self {
        Self { parameters, buffers, constants, ..Self::default() }
    }
}

/// Tensors of a model that are not trained, as number of values and type.
#[doc(hidden)]
pub struct Untrained {
    /// Parameters that are frozen.
    pub frozen: Vec<(usize, DType)>,
    /// Buffers, saved or not.
    pub buffers: Vec<(usize, DType)>,
}
