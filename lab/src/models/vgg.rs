//! VGG-16 (Simonyan and Zisserman 2014), as torchvision builds it: no batch normalisation, activations in place.

use memcore::Tensor;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::nn::{Activation, Conv2d, Dropout, Flatten, Init, Linear, MaxPool2d, Module, Sequential};
use memcore::ops;

use super::{Architecture, Defaults, ModelOptions, Recompute, Task, image_task};
use crate::error::Result;

/// Convolutions of each stage and their channels, in channels of the first stage.
const STAGES: [(usize, usize); 5] = [(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)];

struct Vgg16 {
    /// Channels of the first stage; the two hidden linear layers are 64 times as wide.
    width: usize,
    /// Side of the pictures after the five stages.
    side: usize,
    task: Task,
    classes: usize,
    dropout: f64,
    /// Its blocks are the five stages of convolutions.
    recompute: Recompute,
}

/// 138 million parameters.
pub(super) fn vgg16(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("vgg16", &["width", "image", "classes", "dropout", "checkpoint"])?;
    options.recompute.check("vgg16", STAGES.len())?;
    // Five halvings, then parts of 7 × 7.
    let (task, classes) = image_task(options, 32 * 7)?;
    let side = options.image.unwrap_or(224) / 32;
    let dropout = options.dropout.unwrap_or(0.5);
    let (width, recompute) = (options.width.unwrap_or(64), options.recompute.clone());
    Ok(Box::new(Vgg16 { width, side, task, classes, dropout, recompute }))
}

impl Architecture for Vgg16 {
    fn name(&self) -> &str {
        "vgg16"
    }

    fn description(&self) -> String {
        format!("13 convolutions, {} channels at first, 3 linear layers, {1}×{1} pictures", self.width, 32 * self.side)
    }

    fn task(&self) -> Task {
        self.task.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, optimizer: "momentum", lr: 0.01 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let same = Conv2dGeometry { padding: [1, 1], ..Conv2dGeometry::default() };
        let halves = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
        let features = init.at("features");
        let (mut number, mut inputs) = (0, 3);
        let mut next = || {
            number += 1;
            features.at(number - 1)
        };
        let mut stages = Vec::with_capacity(STAGES.len());
        for (convs, factor) in STAGES {
            let mut stage = Sequential::new();
            for _ in 0..convs {
                stage.push(Conv2d::new(&next(), inputs, self.width * factor, 3, same, true)?);
                stage.push(Activation::new(&next(), ops::relu_));
                inputs = self.width * factor;
            }
            stage.push(MaxPool2d::new(&next(), halves));
            stages.push(stage);
        }
        let mut layers = Sequential::new();
        self.recompute.chain(&mut layers, stages);
        layers.push(Activation::new(&init.at("avgpool"), |x: &Tensor| ops::adaptive_avg_pool2d(x, [7, 7])));
        layers.push(Flatten);
        let classifier = init.at("classifier");
        let hidden = 64 * self.width;
        for (i, inputs) in [inputs * 7 * 7, hidden].into_iter().enumerate() {
            layers.push(Linear::new(&classifier.at(3 * i), inputs, hidden, true)?);
            layers.push(Activation::new(&classifier.at(3 * i + 1), ops::relu_));
            layers.push(Dropout::new(&classifier.at(3 * i + 2), self.dropout)?);
        }
        layers.push(Linear::new(&classifier.at(6), hidden, self.classes, true)?);
        Ok(Box::new(layers))
    }
}
