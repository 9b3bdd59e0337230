//! Lookup tables.

use super::Module;
use super::init::Init;
use super::parameter::{Fill, Parameter};
use crate::autograd::Tensor;
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Rows of a table by index: `[..] → [.., width]`.
pub struct Embedding {
    scope: ScopeId,
    /// `[rows, width]`
    pub weight: Parameter,
}

impl Embedding {
    /// Creates the table with standard normal values, PyTorch's default.
    pub fn new(init: &Init, rows: usize, width: usize) -> Result<Self> {
        Self::with_fill(init, rows, width, Fill::Normal { std: 1.0 })
    }

    /// Creates the table with another initialisation.
    pub fn with_fill(init: &Init, rows: usize, width: usize, fill: Fill) -> Result<Self> {
        Ok(Self { scope: init.scope(), weight: init.parameter("weight", &[rows, width], fill)? })
    }
}

impl Module for Embedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::embedding(indices, self.weight.tensor(), None)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(vec![self.weight.clone()])
    }
}
