//! VGG-16 (Simonyan and Zisserman 2014), as torchvision builds it: no batch normalisation, activations in place.

use lab_base::error::Result;
use memcore::Tensor;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::nn::{Activation, Conv2d, Dropout, Flatten, Init, Linear, MaxPool2d, Module, Sequential};
use memcore::ops;

use super::options::image_task;
use super::{Architecture, Defaults, ModelOptions, Places, Recompute, Task};

/// Convolutions of each stage and their channels, in channels of the first stage.
const STAGES: [(usize, usize); 5] = [(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)];

/// Number of linear layers after the stages.
const CLASSIFIER: usize = 3;

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
    // Five halvings, then 7 × 7 parts.
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
        let stages: memcore::Result<Vec<Sequential>> = (0..STAGES.len()).map(|i| self.stage(init, i)).collect();
        let mut layers = Sequential::new();
        self.recompute.chain(&mut layers, stages?);
        layers.append(pooled(init));
        // A module of its own, whose input is held until its result exists.
        let mut classifier = Sequential::new();
        for number in 0..CLASSIFIER {
            classifier.append(self.classifier(init, number)?);
        }
        layers.push(classifier);
        Ok(Box::new(layers))
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let mut pieces = self.recompute.pieces(0, STAGES.len(), |piece, stage| self.stage(&at(piece), stage))?;
        for piece in 0..CLASSIFIER {
            let init = at(pieces.len());
            let mut layers = if piece == 0 { pooled(&init) } else { Sequential::new() };
            layers.append(self.classifier(&init, piece)?);
            pieces.push(Box::new(layers));
        }
        Ok(pieces)
    }
}

/// What lies between the convolutions and the linear layers.
fn pooled(init: &Init) -> Sequential {
    let mut modules = Sequential::new();
    modules.push(Activation::new(&init.at("avgpool"), |x: &Tensor| ops::adaptive_avg_pool2d(x, [7, 7])));
    modules.push(Flatten);
    modules
}

impl Vgg16 {
    /// The convolutions of a stage with their ReLUs, and a pooling. Numbered as in torchvision's `features`.
    fn stage(&self, init: &Init, stage: usize) -> memcore::Result<Sequential> {
        let same = Conv2dGeometry { padding: [1, 1], ..Conv2dGeometry::default() };
        let halves = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
        let features = init.at("features");
        let (before, [convs, factor]) = (&STAGES[..stage], [STAGES[stage].0, STAGES[stage].1]);
        let first: usize = before.iter().map(|(convs, _)| 2 * convs + 1).sum();
        let mut inputs = before.last().map_or(3, |(_, factor)| self.width * factor);
        let mut modules = Sequential::new();
        for i in 0..convs {
            modules.push(Conv2d::new(&features.at(first + 2 * i), inputs, self.width * factor, 3, same, true)?);
            modules.push(Activation::new(&features.at(first + 2 * i + 1), ops::relu_));
            inputs = self.width * factor;
        }
        modules.push(MaxPool2d::new(&features.at(first + 2 * convs), halves));
        Ok(modules)
    }

    /// One of the [`CLASSIFIER`] linear layers, with the activation and dropout after it.
    fn classifier(&self, init: &Init, number: usize) -> memcore::Result<Sequential> {
        let (classifier, hidden) = (init.at("classifier"), 64 * self.width);
        let mut modules = Sequential::new();
        if number + 1 == CLASSIFIER {
            modules.push(Linear::new(&classifier.at(3 * number), hidden, self.classes, true)?);
            return Ok(modules);
        }
        let inputs = if number == 0 { 8 * self.width * 7 * 7 } else { hidden };
        modules.push(Linear::new(&classifier.at(3 * number), inputs, hidden, true)?);
        modules.push(Activation::new(&classifier.at(3 * number + 1), ops::relu_));
        modules.push(Dropout::new(&classifier.at(3 * number + 2), self.dropout)?);
        Ok(modules)
    }
}
