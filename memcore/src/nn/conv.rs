//! Convolution and pooling layers.

use super::Module;
use super::adapter::{Base, LowRankAdapter};
use super::init::Init;
use super::parameter::{Fill, Parameter};
use crate::autograd::Tensor;
use crate::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Two-dimensional convolution with a square kernel.
pub struct Conv2d {
    scope: ScopeId,
    geometry: Conv2dGeometry,
    /// `[out, in/groups, k, k]`
    pub weight: Parameter,
    /// `[out]`
    pub bias: Option<Parameter>,
    /// What is trained in its place; boxed because few layers have one.
    adapter: Option<Box<LowRankAdapter>>,
}

impl Conv2d {
    /// Creates the layer with PyTorch's default initialisation, and its adapter if `init` has one for it.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the groups do not divide the channels; errors of the device.
    pub fn new(
        init: &Init,
        inputs: usize,
        outputs: usize,
        kernel: usize,
        geometry: Conv2dGeometry,
        bias: bool,
    ) -> Result<Self> {
        let groups = geometry.groups;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let detail = format!("{groups} groups do not divide {inputs} and {outputs} channels");
            return Err(crate::Error::shape("conv2d", detail));
        }
        let fill = Fill::fan_in(inputs / groups * kernel * kernel);
        let weight = init.parameter("weight", &[outputs, inputs / groups, kernel, kernel], fill)?;
        let bias = if bias { Some(init.parameter("bias", &[outputs], fill)?) } else { None };
        let adapter = LowRankAdapter::of_convolution(init, inputs, geometry, weight.array())?.map(Box::new);
        Ok(Self { scope: init.scope(), geometry, weight, bias, adapter })
    }
}

impl Module for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let y = ops::conv2d(x, self.weight.tensor(), self.bias.as_ref().map(Parameter::tensor), self.geometry)?;
        let Some(adapter) = &self.adapter else { return Ok(y) };
        let bias = self.bias.as_ref().map(Parameter::array);
        adapter.added(y, x, &Base { weight: &|| Ok(self.weight.array().clone()), bias })
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        let adapter = self.adapter.as_ref().map_or(Ok(Vec::new()), |adapter| adapter.parameters())?;
        Ok(std::iter::once(&self.weight).chain(&self.bias).cloned().chain(adapter).collect())
    }
}

/// Max pooling.
pub struct MaxPool2d {
    scope: ScopeId,
    geometry: Pool2dGeometry,
}

impl MaxPool2d {
    /// Creates the layer with windows of this geometry.
    pub fn new(init: &Init, geometry: Pool2dGeometry) -> Self {
        Self { scope: init.scope(), geometry }
    }
}

impl Module for MaxPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::max_pool2d(x, self.geometry)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(Vec::new())
    }
}

/// Average pooling.
pub struct AvgPool2d {
    scope: ScopeId,
    geometry: Pool2dGeometry,
}

impl AvgPool2d {
    /// Creates the layer with windows of this geometry.
    pub fn new(init: &Init, geometry: Pool2dGeometry) -> Self {
        Self { scope: init.scope(), geometry }
    }
}

impl Module for AvgPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::avg_pool2d(x, self.geometry)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(Vec::new())
    }
}
