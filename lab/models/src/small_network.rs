//! `small-network` and `larger-conv` of the fourth article: the same network with 16 and with 64 filters.

use lab_base::error::Result;
use memcore::backend::kernel::Conv2dGeometry;
use memcore::nn::{Activation, Conv2d, Flatten, Init, Linear, Module, Sequential};
use memcore::ops;

use super::{Architecture, Defaults, Input, Loss, ModelOptions, Places, Task};

struct ConvNet {
    name: &'static str,
    filters: usize,
}

/// `small-network`: 16 filters.
pub(super) fn small_network(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("small-network", &[])?;
    Ok(Box::new(ConvNet { name: "small-network", filters: 16 }))
}

/// `larger-conv`: 64 filters.
pub(super) fn larger_conv(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("larger-conv", &[])?;
    Ok(Box::new(ConvNet { name: "larger-conv", filters: 64 }))
}

impl Architecture for ConvNet {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> String {
        format!("Conv2d(3, {0}, 3) → ReLU → Linear({0}·30·30, 128)", self.filters)
    }

    fn task(&self) -> Task {
        Task { input: Input::Values(vec![3, 32, 32]), loss: Loss::MeanSquaredError { dims: vec![128] } }
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 4, optimizer: "sgd", lr: 1e-3 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(Sequential::from_modules(self.pieces(&|_| init.clone())?)))
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        Ok(vec![
            Box::new(Conv2d::new(&at(0).at("conv"), 3, self.filters, 3, Conv2dGeometry::default(), true)?),
            Box::new(Activation::new(&at(1).at("relu"), ops::relu)),
            Box::new(Flatten),
            Box::new(Linear::new(&at(3).at("fc"), self.filters * 30 * 30, 128, true)?),
        ])
    }
}
