//! Lookup tables.

use super::Module;
use super::embedding_adapter::EmbeddingAdapter;
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
    /// What is trained in its place; boxed because few tables have one.
    adapter: Option<Box<EmbeddingAdapter>>,
}

impl Embedding {
    /// Creates the table with standard normal values, PyTorch's default.
    pub fn new(init: &Init, rows: usize, width: usize) -> Result<Self> {
        Self::with_fill(init, rows, width, Fill::Normal { std: 1.0 })
    }

    /// Creates the table with another initialisation, and its adapter if `init` has one for it.
    pub fn with_fill(init: &Init, rows: usize, width: usize, fill: Fill) -> Result<Self> {
        let weight = init.parameter("weight", &[rows, width], fill)?;
        let adapter = EmbeddingAdapter::beside(init, rows, width)?.map(Box::new);
        Ok(Self { scope: init.scope(), weight, adapter })
    }
}

impl Module for Embedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let rows = ops::embedding(indices, self.weight.tensor(), None)?;
        match &self.adapter {
            Some(adapter) => adapter.added(rows, indices),
            None => Ok(rows),
        }
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        let adapter = self.adapter.iter().flat_map(|adapter| adapter.parameters());
        Ok(std::iter::once(self.weight.clone()).chain(adapter).collect())
    }
}
