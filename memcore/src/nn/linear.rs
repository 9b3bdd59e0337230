//! Fully connected layers, and the low-rank adapters (LoRA) beside those whose own weights are not trained.

use super::Module;
use super::init::Init;
use super::parameter::{Fill, Parameter};
use super::sequential::Dropout;
use crate::autograd::Tensor;
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Fully connected layer: `x @ weightᵀ + bias`, with a weight `[out, in]`.
pub struct Linear {
    scope: ScopeId,
    /// `[out, in]`
    pub weight: Parameter,
    /// `[out]`
    pub bias: Option<Parameter>,
    /// What is trained in its place; boxed because few layers have one.
    adapter: Option<Box<LowRankAdapter>>,
}

impl Linear {
    /// Creates the layer with PyTorch's default initialisation.
    pub fn new(init: &Init, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        Self::with_fill(init, inputs, outputs, bias, Fill::fan_in(inputs))
    }

    /// Creates the layer with another initialisation of weight and bias, and its adapter if `init` has one for it.
    pub fn with_fill(init: &Init, inputs: usize, outputs: usize, bias: bool, fill: Fill) -> Result<Self> {
        let layer = Self::plain(init, inputs, outputs, bias, fill)?;
        let adapter = LowRankAdapter::of_layer(init, inputs, outputs)?.map(Box::new);
        Ok(Self { adapter, ..layer })
    }

    /// Creates the layer without an adapter.
    fn plain(init: &Init, inputs: usize, outputs: usize, bias: bool, fill: Fill) -> Result<Self> {
        let weight = init.parameter("weight", &[outputs, inputs], fill)?;
        let bias = if bias { Some(init.parameter("bias", &[outputs], fill)?) } else { None };
        Ok(Self { scope: init.scope(), weight, bias, adapter: None })
    }

    /// Creates a layer that shares the weight of another one and has no bias.
    pub fn tied(init: &Init, weight: &Parameter) -> Self {
        Self { scope: init.scope(), weight: weight.clone(), bias: None, adapter: None }
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let y = ops::linear(x, self.weight.tensor(), self.bias.as_ref().map(Parameter::tensor))?;
        match &self.adapter {
            None => Ok(y),
            Some(adapter) => adapter.added(y, x),
        }
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        let adapter = self.adapter.as_ref().map_or(Ok(Vec::new()), |adapter| adapter.parameters())?;
        Ok(std::iter::once(&self.weight).chain(&self.bias).cloned().chain(adapter).collect())
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
    /// Creates the adapter that `init` has for a layer from `inputs` to `outputs` features at its path, if it has one: `A` by Kaiming's uniform rule, `B` with zeros. Its weights are float32 where the
    /// layer's are of 16 bits (`autocast_adapter_dtype=True`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a probability outside 0..=1; errors of the device.
    pub fn of_layer(init: &Init, inputs: usize, outputs: usize) -> Result<Option<Self>> {
        let Some(options) = init.adapter() else { return Ok(None) };
        let dtype = if matches!(init.dtype(), DType::F16 | DType::BF16) { DType::F32 } else { init.dtype() };
        let init = init.of_type(dtype);
        let plain = |name: &str, inputs: usize, outputs: usize, fill: Fill| {
            Linear::plain(&init.at(name).at("default"), inputs, outputs, false, fill)
        };
        let dropout =
            (options.dropout > 0.0).then(|| Dropout::new(&init.at("lora_dropout").at("default"), options.dropout));
        Ok(Some(Self {
            scope: init.scope(),
            dropout: dropout.transpose()?,
            down: plain("lora_A", inputs, options.rank, Fill::fan_in(inputs))?,
            up: plain("lora_B", options.rank, outputs, Fill::Constant(0.0))?,
            scaling: options.alpha / options.rank.max(1) as f64,
        }))
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
    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok([self.down.parameters()?, self.up.parameters()?].concat())
    }
}
