//! What a network of the `transformers` library takes and gives: its loss is computed inside.

use std::sync::Arc;

use memcore::Tensor;
use memcore::nn::Parameter;

use super::cache::{DynamicCache, LayerCache};
use super::loss;

/// One batch on the device.
#[derive(Clone)]
pub struct Inputs {
    /// Token indices `[batch, sequence]`, or pixels `[batch, channels, height, width]`.
    pub input: Tensor,
    /// `attention_mask`, i64 `[batch, sequence]`, where one is passed: all ones, since batches here have no padding.
    pub attention_mask: Option<Tensor>,
    /// Class indices: `[batch, sequence]` for language models, `[batch]` for images.
    pub labels: Tensor,
}

/// What a call returns. What a script holds of it decides how long it lives.
pub struct Output {
    /// The loss, a scalar.
    pub loss: Tensor,
    /// Scores before the softmax.
    pub logits: Tensor,
    /// Keys and values of each layer, with `use_cache`.
    pub past_key_values: Vec<LayerCache>,
}

impl Output {
    /// Of a language model: scores, the loss of predicting the next token, and what was cached.
    ///
    /// # Errors
    /// Shapes that do not fit; those of the device.
    pub(super) fn causal(logits: Tensor, labels: &Tensor, cache: Option<Arc<DynamicCache>>) -> memcore::Result<Self> {
        let loss = loss::causal(&logits, labels)?;
        Ok(Self { loss, logits, past_key_values: cache.map_or_else(Vec::new, |cache| cache.take()) })
    }
}

/// A network with its loss.
pub trait Network: Send + Sync {
    /// One forward pass.
    ///
    /// # Errors
    /// Shapes that do not fit; those of the device.
    fn forward(&self, inputs: &Inputs) -> memcore::Result<Output>;

    /// The parameters, given in the order in which they are moved to the device, in the order of `model.parameters()`. They are the same
    /// unless a module has parameters beside its parts.
    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameters
    }
}
