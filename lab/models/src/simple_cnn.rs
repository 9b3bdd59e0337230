//! `simple-cnn` of the first article: one convolution, one pooling, one linear layer on 3×32×32 images.

use lab_base::error::Result;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::nn::{Activation, Conv2d, Flatten, Init, Linear, MaxPool2d, Module, Sequential};
use memcore::ops;

use super::{Architecture, Defaults, Input, Loss, ModelOptions, Places, Task};

struct SimpleCnn;

/// `Conv2d(3, 16, 3, padding 1) → ReLU → MaxPool2d(2) → Linear(4096, 10)`.
pub(super) fn simple_cnn(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("simple-cnn", &[])?;
    Ok(Box::new(SimpleCnn))
}

impl Architecture for SimpleCnn {
    fn name(&self) -> &str {
        "simple-cnn"
    }

    fn description(&self) -> String {
        "Conv2d(3, 16, 3, padding 1) → ReLU → MaxPool2d(2) → Linear(4096, 10)".into()
    }

    fn task(&self) -> Task {
        Task { input: Input::Values(vec![3, 32, 32]), loss: Loss::CrossEntropy { classes: 10 } }
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 128, optimizer: "adam", lr: 1e-3 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(Sequential::from_modules(self.pieces(&|_| init.clone())?)))
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let same = Conv2dGeometry { padding: [1, 1], ..Conv2dGeometry::default() };
        let halves = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
        Ok(vec![
            Box::new(Conv2d::new(&at(0).at("conv1"), 3, 16, 3, same, true)?),
            Box::new(Activation::new(&at(1).at("relu"), ops::relu)),
            Box::new(MaxPool2d::new(&at(2).at("pool"), halves)),
            Box::new(Flatten),
            Box::new(Linear::new(&at(4).at("fc"), 16 * 16 * 16, 10, true)?),
        ])
    }
}
