//! Lookup tables.

use super::Module;
use super::adapter::TableAdapter;
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
    adapter: Option<Box<TableAdapter>>,
}

impl Embedding {
    /// Creates the table with standard normal values, PyTorch's default.
    pub fn new(init: &Init, rows: usize, width: usize) -> Result<Self> {
        Self::with_fill(init, rows, width, Fill::Normal { std: 1.0 })
    }

    /// Creates the table with another initialisation, and its adapter if `init` has one for it.
    pub fn with_fill(init: &Init, rows: usize, width: usize, fill: Fill) -> Result<Self> {
        let table = Self::without_adapter(init, rows, width, fill)?;
        let adapter = TableAdapter::beside(init, table.weight.array())?.map(Box::new);
        Ok(Self { adapter, ..table })
    }

    /// Creates a table that never has an adapter.
    pub fn without_adapter(init: &Init, rows: usize, width: usize, fill: Fill) -> Result<Self> {
        let weight = init.parameter("weight", &[rows, width], fill)?;
        Ok(Self { scope: init.scope(), weight, adapter: None })
    }

    /// The rows of the table alone.
    ///
    /// # Errors
    /// As [`Module::forward`].
    pub fn rows(&self, indices: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::embedding(indices, self.weight.tensor(), None)
    }

    /// Adds what the adapter gives to the rows, if there is one. `scale` is what the rows were multiplied with.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn adapted(&self, rows: Tensor, indices: &Tensor, scale: Option<&Tensor>) -> Result<Tensor> {
        match &self.adapter {
            None => Ok(rows),
            Some(adapter) => adapter.added(rows, indices, self.weight.array(), scale),
        }
    }
}

impl Module for Embedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.adapted(self.rows(indices)?, indices, None)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        let adapter = self.adapter.iter().flat_map(|adapter| adapter.parameters());
        Ok(std::iter::once(self.weight.clone()).chain(adapter).collect())
    }
}
