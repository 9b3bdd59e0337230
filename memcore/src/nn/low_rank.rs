//! Low-rank adapters (LoRA) beside layers whose own weights are not trained.

use std::fmt;

use super::Module;
use super::init::{Fill, Init, Parameter};
use super::linear::Linear;
use super::sequential::Dropout;
use crate::autograd::Tensor;
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Sizes and factors of low-rank adapters, as PEFT's `LoraConfig` has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRank {
    /// `r`: features between the two matrices.
    pub rank: usize,
    /// `lora_alpha`: the result is multiplied with `alpha/rank`.
    pub alpha: f64,
    /// `lora_dropout`: probability of dropping an element of the input.
    pub dropout: f64,
}

impl fmt::Display for LowRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)
    }
}

/// An adapter: `scaling · B(A(dropout(x)))`, which is added to the layer's own result.
///
/// The order of its temporaries is that of `lora.Linear.forward` in PEFT 0.21.
pub struct LowRankAdapter {
    scope: ScopeId,
    down: Linear,
    up: Linear,
    dropout: Option<Dropout>,
    scaling: f64,
}

impl LowRankAdapter {
    /// Creates the adapter of a layer from `inputs` to `outputs` features: `A` by Kaiming's uniform rule, `B` with zeros. Its weights are float32 where the
    /// layer's are of 16 bits (`autocast_adapter_dtype=True`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a probability outside 0..=1; errors of the device.
    pub(super) fn new(init: &Init, options: LowRank, inputs: usize, outputs: usize) -> Result<Self> {
        let dtype = if matches!(init.dtype(), DType::F16 | DType::BF16) { DType::F32 } else { init.dtype() };
        let init = init.of_type(dtype);
        let plain = |name: &str, inputs: usize, outputs: usize, fill: Fill| {
            Linear::plain(&init.at(name).at("default"), inputs, outputs, false, fill)
        };
        let dropout =
            (options.dropout > 0.0).then(|| Dropout::new(&init.at("lora_dropout").at("default"), options.dropout));
        Ok(Self {
            scope: init.scope(),
            dropout: dropout.transpose()?,
            down: plain("lora_A", inputs, options.rank, Fill::fan_in(inputs))?,
            up: plain("lora_B", options.rank, outputs, Fill::Constant(0.0))?,
            scaling: options.alpha / options.rank.max(1) as f64,
        })
    }

    /// Adds the adapter's result for `x` to the layer's own result, in the type of the latter.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn added(&self, own: Tensor, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let dtype = own.dtype();
        // The function's `x` is bound to the converted input until it returns.
        let x = ops::cast(x, self.down.weight.tensor().dtype())?;
        let dropped = self.dropout.as_ref().map_or_else(|| Ok(x.clone()), |dropout| dropout.forward(&x))?;
        let low = self.down.forward(&dropped)?;
        drop(dropped);
        let high = self.up.forward(&low)?;
        drop(low);
        let scaled = ops::mul_scalar(&high, self.scaling)?;
        drop(high);
        let sum = ops::add(&own, &scaled)?;
        drop(scaled);
        drop(own);
        ops::cast(&sum, dtype)
    }

    /// Its parameters: `A`, `B`.
    ///
    /// # Errors
    /// Those of the layers.
    pub(super) fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok([self.down.parameters()?, self.up.parameters()?].concat())
    }
}
