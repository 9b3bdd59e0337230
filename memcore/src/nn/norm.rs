//! Normalisation layers.

use super::Module;
use super::init::Init;
use super::parameter::{Fill, Parameter};
use super::slots::Training;
use crate::array::Array;
use crate::autograd::Tensor;
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Layer normalisation over the last dimension. Initially weight 1 and bias 0.
pub struct LayerNorm {
    scope: ScopeId,
    eps: f64,
    /// `[width]`
    pub weight: Parameter,
    /// `[width]`
    pub bias: Parameter,
}

impl LayerNorm {
    /// Creates the layer for `width` features; PyTorch's default eps is 1e-5.
    pub fn new(init: &Init, width: usize, eps: f64) -> Result<Self> {
        let weight = init.parameter("weight", &[width], Fill::Constant(1.0))?;
        let bias = init.parameter("bias", &[width], Fill::Constant(0.0))?;
        Ok(Self { scope: init.scope(), eps, weight, bias })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::layer_norm(x, self.weight.array().dims(), Some(self.weight.tensor()), Some(self.bias.tensor()), self.eps)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok([self.weight.clone(), self.bias.clone()].into())
    }
}

/// Root-mean-square normalisation: divides the last dimension by its root mean square. Initially weight 1.
pub struct RmsNorm {
    scope: ScopeId,
    eps: f64,
    /// `[width]`
    pub weight: Parameter,
}

impl RmsNorm {
    /// Creates the layer for `width` features.
    pub fn new(init: &Init, width: usize, eps: f64) -> Result<Self> {
        Ok(Self { scope: init.scope(), eps, weight: init.parameter("weight", &[width], Fill::Constant(1.0))? })
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::rms_norm(x, self.weight.array().dims(), Some(self.weight.tensor()), self.eps)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(vec![self.weight.clone()])
    }
}

/// Group normalisation over groups of channels of `[n, c, ..]`. Initially weight 1 and bias 0.
pub struct GroupNorm {
    scope: ScopeId,
    eps: f64,
    groups: usize,
    /// `[c]`
    pub weight: Parameter,
    /// `[c]`
    pub bias: Parameter,
}

impl GroupNorm {
    /// Creates the layer with `groups` groups, which must divide `channels`; PyTorch's default eps is 1e-5.
    pub fn new(init: &Init, groups: usize, channels: usize, eps: f64) -> Result<Self> {
        let weight = init.parameter("weight", &[channels], Fill::Constant(1.0))?;
        let bias = init.parameter("bias", &[channels], Fill::Constant(0.0))?;
        Ok(Self { scope: init.scope(), eps, groups, weight, bias })
    }
}

impl Module for GroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::group_norm(x, self.groups, Some(self.weight.tensor()), Some(self.bias.tensor()), self.eps)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok([self.weight.clone(), self.bias.clone()].into())
    }
}

/// Batch normalisation of each channel of `[n, c, h, w]`. Initially weight 1, bias 0, running mean 0 and variance 1.
pub struct BatchNorm2d {
    scope: ScopeId,
    eps: f64,
    momentum: f64,
    training: Training,
    /// `[c]`
    pub weight: Parameter,
    /// `[c]`
    pub bias: Parameter,
    /// `[c]`
    pub running_mean: Array,
    /// `[c]`
    pub running_var: Array,
    /// Number of steps so far; a scalar that PyTorch keeps on the device.
    pub num_batches_tracked: Array,
}

impl BatchNorm2d {
    /// Creates the layer for `channels`, with PyTorch's defaults: eps 1e-5, momentum 0.1.
    pub fn new(init: &Init, channels: usize) -> Result<Self> {
        Ok(Self {
            scope: init.scope(),
            eps: 1e-5,
            momentum: 0.1,
            training: init.training(),
            weight: init.parameter("weight", &[channels], Fill::Constant(1.0))?,
            bias: init.parameter("bias", &[channels], Fill::Constant(0.0))?,
            running_mean: init.buffer("running_mean", &[channels], init.dtype(), 0.0)?,
            running_var: init.buffer("running_var", &[channels], init.dtype(), 1.0)?,
            num_batches_tracked: init.buffer("num_batches_tracked", &[], crate::DType::I64, 0.0)?,
        })
    }
}

impl Module for BatchNorm2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let training = self.training.is_on();
        if training {
            self.num_batches_tracked.unary_(crate::backend::kernel::UnaryOp::Affine { mul: 1.0, add: 1.0 })?;
        }
        let (weight, bias) = (Some(self.weight.tensor()), Some(self.bias.tensor()));
        let running = ops::RunningStats { mean: &self.running_mean, var: &self.running_var };
        let options = ops::BatchNormOptions { training, momentum: self.momentum, eps: self.eps };
        ops::batch_norm(x, weight, bias, Some(running), options)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok([self.weight.clone(), self.bias.clone()].into())
    }
}
