//! The weight of a linear layer with a low-rank adapter: a call of the layer is `lora.Linear.forward` of PEFT.

use memcore::nn::{Base, Init, LowRankAdapter};
use memcore::{Result, Tensor, ops};

/// The weight of a linear layer with its adapter.
pub(super) struct AdaptedWeight {
    weight: Tensor,
    adapter: LowRankAdapter,
}

impl AdaptedWeight {
    /// Makes the adapter that `init` has for the layer of this weight `[out, in]`, which is called so; `None` if it has none.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn beside(init: &Init, path: &str, weight: &Tensor) -> Result<Option<Self>> {
        let (Some((module, _)), &[outputs, inputs]) = (path.rsplit_once('.'), weight.dims()) else { return Ok(None) };
        let adapter = LowRankAdapter::beside(&init.at(module), inputs, outputs, weight.array())?;
        Ok(adapter.map(|adapter| Self { weight: weight.clone(), adapter }))
    }

    /// The layer's result with that of its adapter.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let own = ops::linear(x, &self.weight, bias)?;
        self.adapter.added(own, x, &Base { weight: &|| Ok(self.weight.array().clone()), bias: bias.map(Tensor::array) })
    }
}
