//! ConvNeXt (Liu et al. 2022), as torchvision builds it: depthwise convolutions, then linear layers over the channels of each point.
//!
//! Views switch a picture between channels first and channels last. What a block adds has the views' layout, with the channels innermost. cuDNN convolves
//! it as it lies, and copies the weight into that layout. Without cuDNN the next convolution makes its input contiguous again.

use lab_base::error::{Error, Result};
use memcore::backend::kernel::{Conv2dGeometry, UnaryOp};
use memcore::memory::ScopeId;
use memcore::nn::{
    Activation, Conv2d, Fill, Flatten, Init, LayerNorm, Linear, Module, Parameter, Sequential, Training,
};
use memcore::{Array, Tensor, context, ops};

use super::options::image_task;
use super::{Architecture, Defaults, Input, ModelOptions, Places, Recompute, Task};

/// Epsilon of every normalisation.
const EPS: f64 = 1e-6;

/// Initial value of a block's scale, by which its result is multiplied channel by channel.
const LAYER_SCALE: f64 = 1e-6;

/// Parameters of a block besides its scale: those of a convolution, a normalisation and two linear layers.
const INSIDE: usize = 8;

/// The least side: a quarter of it is halved three times.
const MIN_SIDE: usize = 32;

/// A member of the family.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    /// Channels of the first stage; each further one has twice as many.
    width: usize,
    /// Blocks of each stage.
    blocks: [usize; 4],
    /// Probability of leaving out the last block for an example. It rises evenly from the first block, which is never left out.
    drop: f64,
}

struct ConvNeXt {
    size: Size,
    task: Task,
    classes: usize,
    recompute: Recompute,
}

/// 28.6 million parameters.
pub(super) fn convnext_tiny(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Size { name: "convnext-tiny", width: 96, blocks: [3, 3, 9, 3], drop: 0.1 }, options)
}

/// 50.2 million parameters.
pub(super) fn convnext_small(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Size { name: "convnext-small", width: 96, blocks: [3, 3, 27, 3], drop: 0.4 }, options)
}

/// 88.6 million parameters.
pub(super) fn convnext_base(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Size { name: "convnext-base", width: 128, blocks: [3, 3, 27, 3], drop: 0.5 }, options)
}

/// 197.8 million parameters.
pub(super) fn convnext_large(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Size { name: "convnext-large", width: 192, blocks: [3, 3, 27, 3], drop: 0.5 }, options)
}

fn configured(size: Size, options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only(size.name, &["width", "image", "classes", "dropout", "checkpoint"])?;
    options.recompute.check(size.name, size.blocks.iter().sum())?;
    let (task, classes) = image_task(options, 1)?;
    if options.image.is_some_and(|side| side < MIN_SIDE) {
        return Err(Error::usage("image", format!("{MIN_SIDE} at least, for a quarter and three halvings")));
    }
    let (width, drop) = (options.width.unwrap_or(size.width), options.dropout.unwrap_or(size.drop));
    let recompute = options.recompute.clone();
    Ok(Box::new(ConvNeXt { size: Size { width, drop, ..size }, task, classes, recompute }))
}

impl ConvNeXt {
    /// Channels of a stage.
    fn channels(&self, stage: usize) -> usize {
        self.size.width << stage
    }

    /// Blocks before a stage.
    fn before(&self, stage: usize) -> usize {
        self.size.blocks[..stage].iter().sum()
    }

    /// The blocks of a stage that are recomputed, numbered from 0 within the stage.
    fn recompute(&self, stage: usize) -> Recompute {
        self.recompute.part(self.before(stage), self.size.blocks[stage])
    }

    fn stem(&self, init: &Init) -> memcore::Result<Sequential> {
        let (at, channels) = (init.at("features").at(0), self.channels(0));
        let quarters = Conv2dGeometry { stride: [4, 4], ..Conv2dGeometry::default() };
        let mut modules = Sequential::new();
        modules.push(Conv2d::new(&at.at(0), 3, channels, 4, quarters, true)?);
        modules.push(LayerNorm2d::new(&at.at(1), channels)?);
        Ok(modules)
    }

    /// A block of a stage, as a chain of one.
    fn block(&self, init: &Init, stage: usize, number: usize) -> memcore::Result<Sequential> {
        let at = init.at("features").at(1 + 2 * stage).at(number);
        let all: usize = self.size.blocks.iter().sum();
        let drop = self.size.drop * (self.before(stage) + number) as f64 / (all as f64 - 1.0);
        let mut modules = Sequential::new();
        modules.push(Block::new(&at, self.channels(stage), drop)?);
        Ok(modules)
    }

    /// Layers after a stage: they halve the sides and double the channels.
    fn halving(&self, init: &Init, stage: usize) -> memcore::Result<Sequential> {
        let at = init.at("features").at(2 + 2 * stage);
        let halves = Conv2dGeometry { stride: [2, 2], ..Conv2dGeometry::default() };
        let [inputs, outputs] = [self.channels(stage), self.channels(stage + 1)];
        let mut modules = Sequential::new();
        modules.push(LayerNorm2d::new(&at.at(0), inputs)?);
        modules.push(Conv2d::new(&at.at(1), inputs, outputs, 2, halves, true)?);
        Ok(modules)
    }

    /// Layers after the stages: from channels to classes.
    fn head(&self, init: &Init) -> memcore::Result<Sequential> {
        let (classifier, channels) = (init.at("classifier"), self.channels(self.size.blocks.len() - 1));
        let mut modules = Sequential::new();
        modules.push(Activation::new(&init.at("avgpool"), |x: &Tensor| ops::adaptive_avg_pool2d(x, [1, 1])));
        let mut layers = Sequential::new();
        layers.push(LayerNorm2d::new(&classifier.at(0), channels)?);
        layers.push(Flatten);
        layers.push(Linear::new(&classifier.at(2), channels, self.classes, true)?);
        modules.push(layers);
        Ok(modules)
    }
}

impl Architecture for ConvNeXt {
    fn name(&self) -> &str {
        self.size.name
    }

    fn description(&self) -> String {
        let Input::Values(dims) = &self.task.input else { return String::new() };
        let Size { width, blocks, .. } = self.size;
        format!(
            "stages of {blocks:?} blocks of depthwise convolution and two linear layers, {width} channels at first, {dims:?}"
        )
    }

    fn task(&self) -> Task {
        self.task.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, optimizer: "adamw", lr: 1e-3 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        // Chains within a chain: a stage's input is held until the stage is done.
        let mut features = Sequential::new();
        features.push(self.stem(init)?);
        for (stage, &count) in self.size.blocks.iter().enumerate() {
            let blocks: memcore::Result<Vec<_>> = (0..count).map(|number| self.block(init, stage, number)).collect();
            let mut inside = Sequential::new();
            self.recompute(stage).chain(&mut inside, blocks?);
            features.push(inside);
            if stage + 1 < self.size.blocks.len() {
                features.push(self.halving(init, stage)?);
            }
        }
        let mut all = Sequential::new();
        all.push(features);
        all.append(self.head(init)?);
        Ok(Box::new(all))
    }

    fn not_channels_last(&self) -> Option<String> {
        None
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(self.stem(&at(0))?)];
        for (stage, &count) in self.size.blocks.iter().enumerate() {
            let build = |piece: usize, number| self.block(&at(piece), stage, number);
            pieces.extend(self.recompute(stage).pieces(pieces.len(), count, build)?);
            if stage + 1 < self.size.blocks.len() {
                pieces.push(Box::new(self.halving(&at(pieces.len()), stage)?));
            }
        }
        pieces.push(Box::new(self.head(&at(pieces.len()))?));
        Ok(pieces)
    }

    /// A module's own parameters come before those of its parts. These are moved to the device first: a block's scale is made last.
    fn optimizer_order(&self, mut parameters: Vec<Parameter>) -> Vec<Parameter> {
        let scales: Vec<usize> = (INSIDE..parameters.len()).filter(|&i| is_scale(&parameters[i])).collect();
        for place in scales {
            parameters[place - INSIDE..=place].rotate_right(1);
        }
        parameters
    }
}

fn is_scale(parameter: &Parameter) -> bool {
    parameter.path().ends_with(".layer_scale")
}

/// Normalises the channels of each point; the channels come first in its input and output.
struct LayerNorm2d {
    scope: ScopeId,
    norm: LayerNorm,
}

impl LayerNorm2d {
    fn new(init: &Init, channels: usize) -> memcore::Result<Self> {
        Ok(Self { scope: init.scope(), norm: LayerNorm::new(init, channels, EPS)? })
    }
}

impl Module for LayerNorm2d {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut x = channels_last(x)?;
        x = self.norm.forward(&x)?;
        channels_first(&x)
    }
}

/// `[n, c, h, w]` as `[n, h, w, c]`.
fn channels_last(x: &Tensor) -> memcore::Result<Tensor> {
    ops::permute(x, &[0, 2, 3, 1])
}

/// `[n, h, w, c]` as `[n, c, h, w]`.
fn channels_first(x: &Tensor) -> memcore::Result<Tensor> {
    ops::permute(x, &[0, 3, 1, 2])
}

/// `CNBlock`: a depthwise convolution, mixed over the channels and scaled; left out for some examples, and added to the input.
struct Block {
    scope: ScopeId,
    inside: Sequential,
    scale: Parameter,
    depth: StochasticDepth,
}

impl Block {
    fn new(init: &Init, channels: usize, drop: f64) -> memcore::Result<Self> {
        let at = init.at("block");
        let single = Conv2dGeometry { padding: [3, 3], groups: channels, ..Conv2dGeometry::default() };
        let mut inside = Sequential::new();
        inside.push(Conv2d::new(&at.at(0), channels, channels, 7, single, true)?);
        inside.push(Activation::new(&at.at(1), channels_last));
        inside.push(LayerNorm::new(&at.at(2), channels, EPS)?);
        inside.push(Linear::new(&at.at(3), channels, 4 * channels, true)?);
        inside.push(Activation::new(&at.at(4), ops::gelu));
        inside.push(Linear::new(&at.at(5), 4 * channels, channels, true)?);
        inside.push(Activation::new(&at.at(6), channels_first));
        let scale = init.parameter("layer_scale", &[channels, 1, 1], Fill::Constant(LAYER_SCALE))?;
        let depth = StochasticDepth { scope: init.at("stochastic_depth").scope(), p: drop, training: init.training() };
        Ok(Self { scope: init.scope(), inside, scale, depth })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let result = {
            let inside = self.inside.forward(x)?;
            ops::mul(self.scale.tensor(), &inside)?
        };
        match self.depth.noise(&result)? {
            // Under autocast the input may be of the lower type.
            Some(noise) => ops::mul_add_(&result, &noise, x),
            None => ops::add_(&result, x),
        }
    }
}

/// `StochasticDepth` by rows: a branch's result becomes 0 for a whole example with probability `p`, and is divided by `1 − p` otherwise.
struct StochasticDepth {
    scope: ScopeId,
    p: f64,
    training: Training,
}

impl StochasticDepth {
    /// Returns the factors of a result like `x`, `[n, 1, …]`; `None` if no example is left out.
    fn noise(&self, x: &Tensor) -> memcore::Result<Option<Tensor>> {
        if !self.training.is_on() || self.p == 0.0 {
            return Ok(None);
        }
        let _scope = context::scope(self.scope);
        let dims: Vec<usize> = x.dims().iter().enumerate().map(|(axis, &n)| if axis == 0 { n } else { 1 }).collect();
        // A draw below 0 becomes 0 and one above becomes 1, in the memory of the draw: there is no separate mask.
        let noise = Array::uniform(x.device(), &dims, x.dtype(), -self.p, 1.0 - self.p)?;
        noise.unary_(UnaryOp::Sign)?;
        noise.unary_(UnaryOp::Relu)?;
        if self.p < 1.0 {
            noise.unary_(UnaryOp::Affine { mul: 1.0 / (1.0 - self.p), add: 0.0 })?;
        }
        Ok(Some(Tensor::from_array(noise)))
    }
}
