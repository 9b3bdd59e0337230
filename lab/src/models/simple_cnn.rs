//! `simple-cnn` of the first article: one convolution, one pooling, one linear layer on 3×32×32 images.

use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::nn::{Activation, Conv2d, Flatten, Init, Linear, MaxPool2d, Module, Sequential};
use memcore::ops;

use super::{Architecture, Defaults, Input, Loss, ModelOptions, Task};
use crate::error::Result;

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
        let mut layers = Sequential::new();
        let same = Conv2dGeometry { padding: [1, 1], ..Conv2dGeometry::default() };
        layers.push(Conv2d::new(&init.at("conv1"), 3, 16, 3, same, true)?);
        layers.push(Activation::new(&init.at("relu"), ops::relu));
        let halves = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
        layers.push(MaxPool2d::new(&init.at("pool"), halves));
        layers.push(Flatten);
        layers.push(Linear::new(&init.at("fc"), 16 * 16 * 16, 10, true)?);
        Ok(Box::new(layers))
    }
}
