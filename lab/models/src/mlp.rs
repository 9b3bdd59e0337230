//! Fully connected networks: `linear` and `two-layer` of the second article, `mlp` of the third.

use lab_base::error::{Error, Result};
use memcore::nn::{Activation, Init, Linear, Module, Sequential};
use memcore::ops;

use super::keeping::Keeping;
use super::{Architecture, Defaults, Input, Loss, ModelOptions, Places, Recompute, Task};

struct Mlp {
    name: &'static str,
    /// Sizes from the input to the output.
    sizes: Vec<usize>,
    loss: Loss,
    defaults: Defaults,
    /// Its blocks are the hidden layers with their ReLUs.
    recompute: Recompute,
    /// True if hidden activations go into a list.
    keeps: bool,
}

/// `Linear(10, 1)`.
pub(super) fn linear(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("linear", &[])?;
    regression("linear", vec![10, 1], false)
}

/// `Linear(10, 20) → ReLU → Linear(20, 1)`. The article's version also appends the result of the ReLU to a list.
pub(super) fn two_layer(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("two-layer", &["keep-intermediate"])?;
    regression("two-layer", vec![10, 20, 1], options.keep_intermediate)
}

fn regression(name: &'static str, sizes: Vec<usize>, keeps: bool) -> Result<Box<dyn Architecture>> {
    let loss = Loss::MeanSquaredError { dims: vec![1] };
    let defaults = Defaults { batch: 32, optimizer: "sgd", lr: 0.01 };
    Ok(Box::new(Mlp { name, sizes, loss, defaults, recompute: Recompute::None, keeps }))
}

/// `layers` hidden layers of `width` neurons: by default two of 128 on the 64 pixels of the digits.
pub(super) fn mlp(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("mlp", &["layers", "width", "features", "classes", "checkpoint"])?;
    let [layers, width] = [options.layers.unwrap_or(2), options.width.unwrap_or(128)];
    let [features, classes] = [options.features.unwrap_or(64), options.classes.unwrap_or(10)];
    for (option, value) in [("width", width), ("features", features), ("classes", classes)] {
        if value == 0 {
            return Err(Error::usage(option, "must be at least 1"));
        }
    }
    options.recompute.check("mlp", layers)?;
    let mut sizes = vec![features];
    sizes.extend(std::iter::repeat_n(width, layers));
    sizes.push(classes);
    let defaults = Defaults { batch: 64, optimizer: "adam", lr: 1e-3 };
    let (loss, recompute) = (Loss::CrossEntropy { classes }, options.recompute.clone());
    Ok(Box::new(Mlp { name: "mlp", sizes, loss, defaults, recompute, keeps: false }))
}

impl Architecture for Mlp {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        let keeps = if self.keeps { ", hidden activations kept in a list" } else { "" };
        format!("fully connected {}, ReLU between{keeps}", sizes.join(" → "))
    }

    fn task(&self) -> Task {
        Task { input: Input::Values(vec![self.sizes[0]]), loss: self.loss.clone() }
    }

    fn defaults(&self) -> Defaults {
        self.defaults
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let last = self.sizes.len() - 2;
        let blocks: memcore::Result<Vec<Sequential>> = (0..last).map(|i| self.hidden(init, i)).collect();
        let mut layers = Sequential::new();
        self.recompute.chain(&mut layers, blocks?);
        layers.push(self.linear(init, last)?);
        Ok(Box::new(layers))
    }

    fn indivisible(&self) -> Option<&'static str> {
        self.keeps.then_some("its list of intermediate results would lie on several devices")
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let last = self.sizes.len() - 2;
        let mut pieces = self.recompute.pieces(0, last, |piece, block| self.hidden(&at(piece), block))?;
        let output = self.linear(&at(pieces.len()), last)?;
        pieces.push(Box::new(output));
        Ok(pieces)
    }
}

impl Mlp {
    /// A linear layer, numbered as in `nn.Sequential`, where the activations count too.
    fn linear(&self, init: &Init, i: usize) -> memcore::Result<Linear> {
        Linear::new(&init.at(2 * i), self.sizes[i], self.sizes[i + 1], true)
    }

    fn hidden(&self, init: &Init, i: usize) -> memcore::Result<Sequential> {
        let mut block = Sequential::new();
        block.push(self.linear(init, i)?);
        let relu = Activation::new(&init.at(2 * i + 1), ops::relu);
        if self.keeps {
            block.push(Keeping::new(init, relu));
        } else {
            block.push(relu);
        }
        Ok(block)
    }
}
