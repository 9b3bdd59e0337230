//! Lookup tables.

use super::Module;
use super::init::{Fill, Init, Parameter};
use crate::autograd::{Tensor, is_grad_enabled};
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Rows of a table by index: `[..] → [.., width]`.
pub struct Embedding {
    scope: ScopeId,
    /// `[rows, width]`
    pub weight: Parameter,
    /// True if its results require gradients though the table does not.
    requires_grad: bool,
}

impl Embedding {
    /// Creates the table with standard normal values, PyTorch's default.
    pub fn new(init: &Init, rows: usize, width: usize) -> Result<Self> {
        Self::with_fill(init, rows, width, Fill::Normal { std: 1.0 })
    }

    /// Creates the table with another initialisation.
    pub fn with_fill(init: &Init, rows: usize, width: usize, fill: Fill) -> Result<Self> {
        let weight = init.parameter("weight", &[rows, width], fill)?;
        Ok(Self { scope: init.scope(), weight, requires_grad: init.take_input_gradients() })
    }
}

impl Module for Embedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let y = ops::embedding(indices, self.weight.tensor(), None)?;
        let becomes_leaf = self.requires_grad && !y.requires_grad() && is_grad_enabled();
        Ok(if becomes_leaf { Tensor::leaf(y.array().clone()) } else { y })
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(vec![self.weight.clone()])
    }
}
