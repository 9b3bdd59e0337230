//! Adapters of tables of embeddings.

use super::dora::{magnitude, of_rows, summed};
use crate::array::Array;
use crate::autograd::Tensor;
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::nn::adapted::LayerKind;
use crate::nn::init::Init;
use crate::nn::parameter::{Fill, Parameter};
use crate::ops;

/// An adapter: `scaling · Aᵀ[indices] Bᵀ`, which is added to the rows of the table.
///
/// The order of its temporaries is that of `lora.Embedding.forward` in PEFT 0.21.
pub(in crate::nn) struct TableAdapter {
    scope: ScopeId,
    /// `[rank, rows]`
    down: Parameter,
    /// `[width, rank]`
    up: Parameter,
    scaling: f64,
    /// `[width]`, of DoRA.
    magnitude: Option<Parameter>,
}

impl TableAdapter {
    /// Creates the adapter that `init` has for the table at its path, if it has one: `A` with zeros, `B` with standard normal values.
    ///
    /// # Errors
    /// Those of the device.
    pub(in crate::nn) fn beside(init: &Init, table: &Array) -> Result<Option<Self>> {
        let Some(options) = init.adapter(LayerKind::Table) else { return Ok(None) };
        let init = init.of_adapter(false);
        let (rows, width) = (table.dims()[0], table.dims()[1]);
        let down = init.at("lora_embedding_A").parameter("default", &[options.rank, rows], Fill::Constant(0.0))?;
        let up = init.at("lora_embedding_B").parameter("default", &[width, options.rank], Fill::Normal { std: 1.0 })?;
        let mut adapter = Self { scope: init.scope(), down, up, scaling: options.scaling, magnitude: None };
        if options.magnitudes {
            let of_existing = if init.adds() { adapter.measured(table)? } else { Vec::new() };
            adapter.magnitude = Some(magnitude(&init, &[width], || Ok(columns(&table.to_f64()?, width)))?);
            drop(of_existing);
        }
        Ok(Some(adapter))
    }

    /// What `DoraLinearLayer.update_layer` makes on the device to measure the columns of a table that is there already, in the order in which it is freed.
    fn measured(&self, table: &Array) -> Result<Vec<Array>> {
        let product = self.up.array().matmul(self.down.array())?;
        let scaled = product.affine(self.scaling, 0.0)?;
        let sum = table.t()?.add(&scaled)?;
        drop(scaled);
        Ok(vec![product, sum])
    }

    /// Adds the adapter's result to the rows of the table that the indices name, in the type of the latter. `scale` is what the layer multiplies its rows with.
    ///
    /// # Errors
    /// Errors of the device.
    pub(in crate::nn) fn added(
        &self,
        own: Tensor,
        indices: &Tensor,
        table: &Array,
        scale: Option<&Tensor>,
    ) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let dtype = own.dtype();
        let (down, up) = (ops::t(self.down.tensor())?, ops::t(self.up.tensor())?);
        let scaled = |added: Tensor| match scale {
            Some(scale) => ops::mul(&added, &ops::cast(scale, added.dtype())?),
            None => Ok(added),
        };
        if let Some(magnitude) = &self.magnitude {
            let (ratio, added) = self.with_magnitude(magnitude, [&down, &up], indices, table)?;
            let added = scaled(added)?;
            let left = ops::mul(&ratio, &own)?;
            let sum = ops::add(&left, &added)?;
            drop((left, own, ratio, added));
            return ops::cast(&sum, dtype);
        }
        let found = ops::embedding(indices, &down, None)?;
        let product = ops::matmul(&found, &up)?;
        let added = ops::mul_scalar(&product, self.scaling)?;
        drop(product);
        let added = scaled(added)?;
        let sum = ops::add(&own, &added)?;
        drop(own);
        let converted = ops::cast(&sum, dtype)?;
        drop(sum);
        drop((found, added));
        Ok(converted)
    }

    /// `DoraEmbeddingLayer.forward`: the magnitudes over the lengths of the columns of `table + scaling · (B A)ᵀ`, and the adapter's result times these.
    fn with_magnitude(
        &self,
        magnitude: &Parameter,
        [down, up]: [&Tensor; 2],
        indices: &Tensor,
        table: &Array,
    ) -> Result<(Tensor, Tensor)> {
        let product = ops::matmul(down, up)?;
        let lengths = {
            let turned = Tensor::from_array(product.array().t()?);
            let sum = summed(&Tensor::from_array(table.t()?), &turned, self.scaling)?;
            of_rows(sum.array())?
        };
        let ratio = ops::div(magnitude.tensor(), &Tensor::from_array(lengths.clone()))?;
        let high = {
            let found = ops::embedding(indices, down, None)?;
            ops::matmul(&found, up)?
        };
        let right = ops::mul(&ratio, &high)?;
        drop(high);
        let scaled = ops::mul_scalar(&right, self.scaling)?;
        drop(right);
        drop((product, lengths));
        Ok((ratio, scaled))
    }

    /// Its parameters: `A`, `B`, and the magnitudes.
    pub(in crate::nn) fn parameters(&self) -> impl Iterator<Item = Parameter> {
        [self.down.clone(), self.up.clone()].into_iter().chain(self.magnitude.clone())
    }
}

/// The lengths of a table's columns.
fn columns(table: &[f64], width: usize) -> Vec<f32> {
    let mut squares = vec![0.0; width];
    for row in table.chunks(width.max(1)) {
        squares.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * value);
    }
    squares.into_iter().map(|sum: f64| sum.sqrt() as f32).collect()
}
