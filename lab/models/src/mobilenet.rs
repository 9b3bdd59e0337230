//! MobileNetV2 (Sandler et al. 2018), as torchvision builds it: depthwise convolutions between narrow layers, activations in place.

use lab_base::error::Result;
use memcore::Tensor;
use memcore::backend::kernel::Conv2dGeometry;
use memcore::context;
use memcore::memory::ScopeId;
use memcore::nn::{Activation, BatchNorm2d, Conv2d, Dropout, Init, Linear, Module, Sequential};
use memcore::ops;

use super::options::image_task;
use super::recompute::{Blocks, Middle};
use super::{Architecture, Defaults, Input, ModelOptions, Places, Recompute, Task};

/// For each stage: the factor by which its blocks widen, its channels (with 32 in the first layer), its number of blocks, and the stride of the
/// first.
const STAGES: [[usize; 4]; 7] =
    [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]];

/// Channels of the first layer.
const WIDTH: usize = 32;

/// Channels before the classifier, which are also the minimum for narrower networks.
const LAST: usize = 1280;

struct MobileNetV2 {
    /// Channels of the first layer; all others follow from it.
    width: usize,
    task: Task,
    classes: usize,
    dropout: f64,
    recompute: Recompute,
}

/// One block's sizes.
#[derive(Clone, Copy)]
struct Plan {
    inputs: usize,
    outputs: usize,
    expand: usize,
    stride: usize,
}

/// 3.5 million parameters.
pub(super) fn mobilenet_v2(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("mobilenet_v2", &["width", "image", "classes", "dropout", "checkpoint"])?;
    let blocks = STAGES.iter().map(|[_, _, blocks, _]| blocks).sum();
    options.recompute.check("mobilenet_v2", blocks)?;
    let (task, classes) = image_task(options, 1)?;
    let (width, dropout) = (options.width.unwrap_or(WIDTH), options.dropout.unwrap_or(0.2));
    Ok(Box::new(MobileNetV2 { width, task, classes, dropout, recompute: options.recompute.clone() }))
}

/// Rounds channels to a multiple of 8 that is at least nine tenths of `channels`.
fn rounded(channels: f64) -> usize {
    let nearest = ((channels + 4.0) as usize / 8 * 8).max(8);
    if (nearest as f64) < 0.9 * channels { nearest + 8 } else { nearest }
}

impl MobileNetV2 {
    /// Channels here, for a layer that has `usual` channels in a network of the usual width.
    fn channels(&self, usual: usize) -> usize {
        rounded(usual as f64 * self.width as f64 / WIDTH as f64)
    }

    fn last(&self) -> usize {
        self.channels(LAST).max(LAST)
    }

    fn plans(&self) -> Vec<Plan> {
        let mut inputs = self.channels(WIDTH);
        let mut plans = Vec::new();
        for [expand, channels, blocks, stride] in STAGES {
            for i in 0..blocks {
                let outputs = self.channels(channels);
                plans.push(Plan { inputs, outputs, expand, stride: if i == 0 { stride } else { 1 } });
                inputs = outputs;
            }
        }
        plans
    }

    fn stem(&self, init: &Init) -> memcore::Result<Sequential> {
        let halves = Conv2dGeometry { stride: [2, 2], padding: [1, 1], ..Conv2dGeometry::default() };
        conv_norm(&init.at("features").at(0), [3, self.channels(WIDTH)], 3, halves)
    }

    fn head(&self, init: &Init, plans: &[Plan]) -> memcore::Result<Head> {
        let channels = plans.last().map_or(WIDTH, |plan| plan.outputs);
        let conv = init.at("features").at(1 + plans.len());
        let classifier = init.at("classifier");
        Ok(Head {
            scope: init.scope(),
            conv: conv_norm(&conv, [channels, self.last()], 1, Conv2dGeometry::default())?,
            dropout: Dropout::new(&classifier.at(0), self.dropout)?,
            linear: Linear::new(&classifier.at(1), self.last(), self.classes, true)?,
        })
    }
}

impl Architecture for MobileNetV2 {
    fn name(&self) -> &str {
        "mobilenet_v2"
    }

    fn description(&self) -> String {
        let Input::Values(dims) = &self.task.input else { return String::new() };
        format!("inverted residual blocks, {} channels at first, {dims:?}", self.channels(WIDTH))
    }

    fn task(&self) -> Task {
        self.task.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, optimizer: "momentum", lr: 0.01 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let stem = self.stem(init)?;
        let plans = self.plans();
        let blocks: memcore::Result<Vec<Block>> =
            (1..).zip(&plans).map(|(i, &plan)| Block::new(&init.at("features").at(i), plan)).collect();
        let blocks = Blocks::new(blocks?, &self.recompute);
        Ok(Box::new(Network { scope: init.scope(), stem, blocks, head: self.head(init, &plans)? }))
    }

    fn not_channels_last(&self) -> Option<String> {
        None
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let plans = self.plans();
        let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(self.stem(&at(0))?)];
        let blocks = Blocks::pieces(&self.recompute, 1, plans.len(), |piece, block| {
            Block::new(&at(piece).at("features").at(1 + block), plans[block])
        })?;
        pieces.extend(
            blocks
                .into_iter()
                .map(|blocks| -> Box<dyn Module> { Box::new(Middle::new(blocks, |block, x, _| block.forward(x))) }),
        );
        pieces.push(Box::new(self.head(&at(pieces.len()), &plans)?));
        Ok(pieces)
    }
}

struct Network {
    scope: ScopeId,
    stem: Sequential,
    blocks: Blocks<Block>,
    head: Head,
}

impl Module for Network {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let x = self.stem.forward(x)?;
        let x = self.blocks.forward(x, &[], |block, x, _| block.forward(x))?;
        self.head.features(x)
    }
}

/// Layers after the blocks: a last 1 × 1 convolution, then from channels to classes.
struct Head {
    scope: ScopeId,
    conv: Sequential,
    dropout: Dropout,
    linear: Linear,
}

impl Head {
    /// Frees `x` as soon as it is convolved, and the mean over all points when the classes exist.
    fn features(&self, mut x: Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        x = self.conv.forward(&x)?;
        x = ops::adaptive_avg_pool2d(&x, [1, 1])?;
        x = ops::flatten(&x, 1)?;
        let kept = self.dropout.forward(&x)?;
        self.linear.forward(&kept)
    }
}

impl Module for Head {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.features(x.clone())
    }
}

/// A convolution without bias, its batch normalisation, and an activation: `Conv2dNormActivation`.
fn conv_norm(
    init: &Init,
    [inputs, outputs]: [usize; 2],
    kernel: usize,
    geometry: Conv2dGeometry,
) -> memcore::Result<Sequential> {
    let mut modules = Sequential::new();
    modules.push(Conv2d::new(&init.at(0), inputs, outputs, kernel, geometry, false)?);
    modules.push(BatchNorm2d::new(&init.at(1), outputs)?);
    modules.push(Activation::new(&init.at(2), ops::relu6_));
    Ok(modules)
}

/// Widens with a 1 × 1 convolution, convolves depthwise, and narrows again; adds the input if the sizes allow it.
struct Block {
    scope: ScopeId,
    conv: Sequential,
    residual: bool,
}

impl Block {
    fn new(init: &Init, Plan { inputs, outputs, expand, stride }: Plan) -> memcore::Result<Self> {
        let (inside, hidden) = (init.at("conv"), inputs * expand);
        let points = Conv2dGeometry::default();
        let single = Conv2dGeometry { stride: [stride, stride], padding: [1, 1], groups: hidden, ..points };
        let mut conv = Sequential::new();
        let mut number = 0..;
        let mut next = || inside.at(number.next().unwrap_or_default());
        if expand != 1 {
            conv.push(conv_norm(&next(), [inputs, hidden], 1, points)?);
        }
        conv.push(conv_norm(&next(), [hidden, hidden], 3, single)?);
        conv.push(Conv2d::new(&next(), hidden, outputs, 1, points, false)?);
        conv.push(BatchNorm2d::new(&next(), outputs)?);
        Ok(Self { scope: init.scope(), conv, residual: stride == 1 && inputs == outputs })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let out = self.conv.forward(x)?;
        if self.residual { ops::add(x, &out) } else { Ok(out) }
    }
}
