//! Fully connected layers.

use super::Module;
use super::adapter::{Base, LowRankAdapter};
use super::init::Init;
use super::parameter::{Fill, Parameter};
use super::quantized::QuantizedWeight;
use crate::autograd::Tensor;
use crate::context;
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
    /// The weight as bitsandbytes keeps it; boxed because few layers have one.
    quantized: Option<Box<QuantizedWeight>>,
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
        let layer = match init.quantization() {
            None => Self::plain(init, inputs, outputs, bias, fill)?,
            Some(how) => {
                let _scope = context::scope(init.scope());
                let (quantized, weight) = init.quantized(|table| {
                    QuantizedWeight::new((init.device(), init.dtype()), how, [inputs, outputs], bias, table)
                })?;
                let quantized = Some(Box::new(quantized));
                Self { scope: init.scope(), weight, bias: None, quantized, adapter: None }
            }
        };
        let adapter =
            LowRankAdapter::of_layer(init, inputs, outputs, layer.weight.array(), layer.quantized.as_deref())?
                .map(Box::new);
        Ok(Self { adapter, ..layer })
    }

    /// Creates the layer without an adapter.
    fn plain(init: &Init, inputs: usize, outputs: usize, bias: bool, fill: Fill) -> Result<Self> {
        let weight = init.parameter("weight", &[outputs, inputs], fill)?;
        let bias = if bias { Some(init.parameter("bias", &[outputs], fill)?) } else { None };
        Ok(Self { scope: init.scope(), weight, bias, quantized: None, adapter: None })
    }

    /// Creates a layer that shares the weight of another one and has no bias.
    pub fn tied(init: &Init, weight: &Parameter) -> Self {
        Self { scope: init.scope(), weight: weight.clone(), bias: None, quantized: None, adapter: None }
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let y = match &self.quantized {
            None => ops::linear(x, self.weight.tensor(), self.bias.as_ref().map(Parameter::tensor))?,
            Some(quantized) => quantized.forward(x)?,
        };
        let Some(adapter) = &self.adapter else { return Ok(y) };
        match &self.quantized {
            None => {
                let bias = self.bias.as_ref().map(Parameter::array);
                adapter.added(y, x, &Base { weight: &|| Ok(self.weight.array().clone()), bias })
            }
            Some(quantized) => adapter.added_to_quantized(y, x, quantized),
        }
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        let adapter = self.adapter.as_ref().map_or(Ok(Vec::new()), |adapter| adapter.parameters())?;
        Ok(std::iter::once(&self.weight).chain(&self.bias).cloned().chain(adapter).collect())
    }
}
