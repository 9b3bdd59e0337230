//! The two maps of an adapter, through few features.

use crate::autograd::Tensor;
use crate::backend::kernel::Conv2dGeometry;
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::nn::Module;
use crate::nn::adapted::LowRank;
use crate::nn::init::Init;
use crate::nn::parameter::{Fill, Parameter};
use crate::nn::sequential::Dropout;
use crate::ops;

/// `A` and `B`, with what stands around them.
pub(super) struct Projections {
    pub(super) down: Projection,
    pub(super) up: Projection,
    pub(super) dropout: Option<Dropout>,
    pub(super) scaling: f64,
}

/// One of the two, a linear layer or a convolution without a bias.
pub(super) struct Projection {
    scope: ScopeId,
    pub(super) weight: Parameter,
    geometry: Option<Conv2dGeometry>,
}

/// Sizes of a map's weight, and how it is a convolution if it is one.
pub(super) type Map<'a> = (&'a [usize], Option<Conv2dGeometry>);

impl Projections {
    /// Makes both under the path of `init`: `A` by Kaiming's uniform rule, `B` with zeros.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a probability outside 0..=1; errors of the device.
    pub(super) fn new(init: &Init, options: &LowRank, down: Map<'_>, up: Map<'_>) -> Result<Self> {
        let at = |name: &str| init.at(name).at("default");
        let dropout = (options.dropout > 0.0).then(|| Dropout::new(&at("lora_dropout"), options.dropout));
        let inputs = down.0.iter().skip(1).product();
        Ok(Self {
            dropout: dropout.transpose()?,
            down: Projection::new(&at("lora_A"), down, Fill::fan_in(inputs))?,
            up: Projection::new(&at("lora_B"), up, Fill::Constant(0.0))?,
            scaling: options.scaling,
        })
    }

    /// `B(A(x))`.
    ///
    /// # Errors
    /// Those of the maps.
    pub(super) fn low_rank(&self, x: Tensor) -> Result<Tensor> {
        let low = self.down.forward(&x)?;
        drop(x);
        self.up.forward(&low)
    }

    /// `scaling · B(A(dropout(x)))`
    ///
    /// # Errors
    /// Those of the maps.
    pub(super) fn scaled(&self, x: &Tensor) -> Result<Tensor> {
        let dropped = self.dropout.as_ref().map_or_else(|| Ok(x.clone()), |dropout| dropout.forward(x))?;
        let high = self.low_rank(dropped)?;
        ops::mul_scalar(&high, self.scaling)
    }

    /// The dropout that drops something.
    pub(super) fn drops(&self) -> Option<&Dropout> {
        self.dropout.as_ref().filter(|dropout| dropout.probability() > 0.0)
    }
}

impl Projection {
    fn new(init: &Init, (dims, geometry): Map<'_>, fill: Fill) -> Result<Self> {
        Ok(Self { scope: init.scope(), weight: init.parameter("weight", dims, fill)?, geometry })
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        match self.geometry {
            None => ops::linear(x, self.weight.tensor(), None),
            Some(geometry) => ops::conv2d(x, self.weight.tensor(), None, geometry),
        }
    }
}
