//! Fully connected layers.

use super::Module;
use super::init::{Fill, Init, Parameter};
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
}

impl Linear {
    /// Creates the layer with PyTorch's default initialisation.
    pub fn new(init: &Init, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        Self::with_fill(init, inputs, outputs, bias, Fill::fan_in(inputs))
    }

    /// Creates the layer with another initialisation of weight and bias.
    pub fn with_fill(init: &Init, inputs: usize, outputs: usize, bias: bool, fill: Fill) -> Result<Self> {
        let weight = init.parameter("weight", &[outputs, inputs], fill)?;
        let bias = if bias { Some(init.parameter("bias", &[outputs], fill)?) } else { None };
        Ok(Self { scope: init.scope(), weight, bias })
    }

    /// Creates a layer that shares the weight of another one and has no bias.
    pub fn tied(init: &Init, weight: &Parameter) -> Self {
        Self { scope: init.scope(), weight: weight.clone(), bias: None }
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::linear(x, self.weight.tensor(), self.bias.as_ref().map(Parameter::tensor))
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(std::iter::once(&self.weight).chain(&self.bias).cloned().collect())
    }
}
