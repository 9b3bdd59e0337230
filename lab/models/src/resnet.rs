//! ResNet-18, -34 and -50 (He et al. 2015), as torchvision builds them: activations and additions in place.

use lab_base::error::Result;
use memcore::Tensor;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::context;
use memcore::memory::ScopeId;
use memcore::nn::{BatchNorm2d, Conv2d, Init, Linear, MaxPool2d, Module};
use memcore::ops;

use super::options::image_task;
use super::recompute::{Blocks, Middle};
use super::{Architecture, Defaults, Input, ModelOptions, Places, Recompute, Task};

/// A member of the family.
#[derive(Clone, Copy)]
struct Depth {
    name: &'static str,
    /// Blocks of each of the four stages.
    blocks: [usize; 4],
    /// True for bottleneck blocks: three convolutions instead of two, and a result four times as wide.
    bottleneck: bool,
}

struct ResNet {
    depth: Depth,
    /// Channels of the first stage.
    width: usize,
    task: Task,
    classes: usize,
    recompute: Recompute,
}

/// 11.7 million parameters.
pub(super) fn resnet18(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Depth { name: "resnet18", blocks: [2, 2, 2, 2], bottleneck: false }, options)
}

/// 21.8 million parameters.
pub(super) fn resnet34(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Depth { name: "resnet34", blocks: [3, 4, 6, 3], bottleneck: false }, options)
}

/// 25.6 million parameters.
pub(super) fn resnet50(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    configured(Depth { name: "resnet50", blocks: [3, 4, 6, 3], bottleneck: true }, options)
}

fn configured(depth: Depth, options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only(depth.name, &["width", "image", "classes", "checkpoint"])?;
    options.recompute.check(depth.name, depth.blocks.iter().sum())?;
    let (task, classes) = image_task(options, 1)?;
    let (width, recompute) = (options.width.unwrap_or(64), options.recompute.clone());
    Ok(Box::new(ResNet { depth, width, task, classes, recompute }))
}

impl Architecture for ResNet {
    fn name(&self) -> &str {
        self.depth.name
    }

    fn description(&self) -> String {
        let kind = if self.depth.bottleneck { "bottleneck" } else { "basic" };
        let Input::Values(dims) = &self.task.input else { return String::new() };
        format!("residual network, {kind} blocks {:?}, {} channels at first, {dims:?}", self.depth.blocks, self.width)
    }

    fn task(&self) -> Task {
        self.task.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, optimizer: "momentum", lr: 0.01 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let stem = Stem::new(init, self.width)?;
        let blocks: memcore::Result<Vec<Block>> = (0..self.block_count()).map(|i| self.block(init, i)).collect();
        let blocks = Blocks::new(blocks?, &self.recompute);
        let head = Head::new(init, self.channels(self.depth.blocks.len() - 1), self.classes)?;
        Ok(Box::new(Network { scope: init.scope(), stem, blocks, stages: self.depth.blocks, head }))
    }

    fn not_channels_last(&self) -> Option<String> {
        None
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(Stem::new(&at(0), self.width)?)];
        let blocks =
            Blocks::pieces(&self.recompute, 1, self.block_count(), |piece, block| self.block(&at(piece), block))?;
        pieces.extend(
            blocks
                .into_iter()
                .map(|blocks| -> Box<dyn Module> { Box::new(Middle::new(blocks, |block, x, _| block.forward(x))) }),
        );
        let channels = self.channels(self.depth.blocks.len() - 1);
        pieces.push(Box::new(Head::new(&at(pieces.len()), channels, self.classes)?));
        Ok(pieces)
    }
}

impl ResNet {
    fn block_count(&self) -> usize {
        self.depth.blocks.iter().sum()
    }

    /// Output channels of a stage.
    fn channels(&self, stage: usize) -> usize {
        (self.width << stage) * if self.depth.bottleneck { 4 } else { 1 }
    }

    /// Builds block `number`, counted over all stages.
    fn block(&self, init: &Init, number: usize) -> memcore::Result<Block> {
        let (mut stage, mut i) = (0, number);
        while i >= self.depth.blocks[stage] {
            i -= self.depth.blocks[stage];
            stage += 1;
        }
        let inputs = match (stage, i) {
            (0, 0) => self.width,
            (_, 0) => self.channels(stage - 1),
            _ => self.channels(stage),
        };
        let stride = if stage > 0 && i == 0 { 2 } else { 1 };
        let at = init.at(format!("layer{}", stage + 1)).at(i);
        Block::new(&at, self.depth.bottleneck, inputs, self.width << stage, stride)
    }
}

struct Network {
    scope: ScopeId,
    stem: Stem,
    blocks: Blocks<Block>,
    /// Blocks of each stage.
    stages: [usize; 4],
    head: Head,
}

impl Module for Network {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let x = self.stem.forward(x)?;
        let x = self.blocks.forward_by_stages(x, &self.stages, |block, x, _| block.forward(x))?;
        self.head.features(x)
    }
}

/// Layers before the blocks: from colours to channels, at a quarter of the size.
struct Stem {
    scope: ScopeId,
    conv: ConvNorm,
    pool: MaxPool2d,
}

impl Stem {
    fn new(init: &Init, width: usize) -> memcore::Result<Self> {
        let first = Conv2dGeometry { stride: [2, 2], padding: [3, 3], ..Conv2dGeometry::default() };
        let overlapping = Pool2dGeometry { window: [3, 3], stride: [2, 2], padding: [1, 1] };
        let conv = ConvNorm::new(init, ["conv1", "bn1"], [3, width], 7, first)?;
        Ok(Self { scope: init.scope(), conv, pool: MaxPool2d::new(&init.at("maxpool"), overlapping) })
    }
}

impl Module for Stem {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let x = ops::relu_(&self.conv.forward(x)?)?;
        self.pool.forward(&x)
    }
}

/// Layers after the blocks: from channels to classes.
struct Head {
    scope: ScopeId,
    linear: Linear,
}

impl Head {
    fn new(init: &Init, channels: usize, classes: usize) -> memcore::Result<Self> {
        Ok(Self { scope: init.scope(), linear: Linear::new(&init.at("fc"), channels, classes, true)? })
    }

    /// Frees `x` as soon as its mean exists.
    fn features(&self, mut x: Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        x = ops::adaptive_avg_pool2d(&x, [1, 1])?;
        x = ops::flatten(&x, 1)?;
        self.linear.forward(&x)
    }
}

impl Module for Head {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.features(x.clone())
    }
}

/// A convolution without bias and its batch normalisation.
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl ConvNorm {
    fn new(
        init: &Init,
        names: [&str; 2],
        [inputs, outputs]: [usize; 2],
        kernel: usize,
        geometry: Conv2dGeometry,
    ) -> memcore::Result<Self> {
        let conv = Conv2d::new(&init.at(names[0]), inputs, outputs, kernel, geometry, false)?;
        Ok(Self { conv, norm: BatchNorm2d::new(&init.at(names[1]), outputs)? })
    }
}

impl Module for ConvNorm {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.norm.forward(&self.conv.forward(x)?)
    }
}

/// Convolutions whose result is added to the input, or to the input's projection if the sizes change.
struct Block {
    scope: ScopeId,
    convs: Vec<ConvNorm>,
    projection: Option<ConvNorm>,
}

impl Block {
    /// The second of three, or the first of two, takes the stride (torchvision's "V1.5").
    fn new(init: &Init, bottleneck: bool, inputs: usize, width: usize, stride: usize) -> memcore::Result<Self> {
        let geometry = |kernel: usize, stride: usize| Conv2dGeometry {
            stride: [stride, stride],
            padding: [kernel / 2, kernel / 2],
            ..Conv2dGeometry::default()
        };
        let outputs = if bottleneck { 4 * width } else { width };
        let plan: &[(usize, [usize; 2], usize)] = if bottleneck {
            &[(1, [inputs, width], 1), (3, [width, width], stride), (1, [width, outputs], 1)]
        } else {
            &[(3, [inputs, width], stride), (3, [width, width], 1)]
        };
        let mut convs = Vec::new();
        for (i, &(kernel, channels, stride)) in plan.iter().enumerate() {
            let names = [format!("conv{}", i + 1), format!("bn{}", i + 1)];
            convs.push(ConvNorm::new(init, [&names[0], &names[1]], channels, kernel, geometry(kernel, stride))?);
        }
        let projection = if stride != 1 || inputs != outputs {
            Some(ConvNorm::new(&init.at("downsample"), ["0", "1"], [inputs, outputs], 1, geometry(1, stride))?)
        } else {
            None
        };
        Ok(Self { scope: init.scope(), convs, projection })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut out = self.convs[0].forward(x)?;
        for conv in &self.convs[1..] {
            out = ops::relu_(&out)?;
            // One variable: the convolution's input is freed before the normalisation, unless something else keeps it.
            out = conv.conv.forward(&out)?;
            out = conv.norm.forward(&out)?;
        }
        out = match &self.projection {
            Some(projection) => {
                let identity = projection.forward(x)?;
                ops::add_(&out, &identity)?
            }
            None => ops::add_(&out, x)?,
        };
        ops::relu_(&out)
    }
}
