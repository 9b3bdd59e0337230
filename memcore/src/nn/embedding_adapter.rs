//! Low-rank adapters (LoRA) beside lookup tables that are not trained.

use super::init::Init;
use super::parameter::{Fill, Parameter};
use crate::autograd::Tensor;
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// An adapter of a table: `scaling · A[indices] B`, which is added to the table's own rows, as `lora.Embedding.forward` of PEFT 0.21 does. Neither dropped nor converted.
pub(super) struct EmbeddingAdapter {
    scope: ScopeId,
    /// `[rank, rows]`
    down: Parameter,
    /// `[width, rank]`
    up: Parameter,
    scaling: f64,
}

impl EmbeddingAdapter {
    /// Creates the adapter that `init` has for a table of so many rows at its path, if it has one: `A` with zeros, `B` with standard normal values.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn beside(init: &Init, rows: usize, width: usize) -> Result<Option<Self>> {
        let Some(options) = init.adapter() else { return Ok(None) };
        let init = init.of_plain_adapter();
        let matrix = |name: &str, dims: &[usize], fill: Fill| init.at(name).parameter("default", dims, fill);
        Ok(Some(Self {
            scope: init.scope(),
            down: matrix("lora_embedding_A", &[options.rank, rows], Fill::Constant(0.0))?,
            up: matrix("lora_embedding_B", &[width, options.rank], Fill::Normal { std: 1.0 })?,
            scaling: options.scaling,
        }))
    }

    /// Adds the adapter's rows to the table's own, in the type of the latter.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn added(&self, own: Tensor, indices: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let dtype = own.dtype();
        let (table, up) = (ops::t(self.down.tensor())?, ops::t(self.up.tensor())?);
        let low = ops::embedding(indices, &table, None)?;
        let scaled = {
            let high = ops::matmul(&low, &up)?;
            ops::mul_scalar(&high, self.scaling)?
        };
        let sum = ops::add(&own, &scaled)?;
        drop(own);
        let result = ops::cast(&sum, dtype)?;
        drop((sum, table, up, low, scaled));
        Ok(result)
    }

    /// Its parameters: `A` and `B`.
    pub(super) fn parameters(&self) -> [Parameter; 2] {
        [self.down.clone(), self.up.clone()]
    }
}
