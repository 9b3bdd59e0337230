//! ResNet-18, -34 and -50 (He et al. 2015), as torchvision builds them: activations and additions in place.

use memcore::Tensor;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::context;
use memcore::memory::ScopeId;
use memcore::nn::{BatchNorm2d, Conv2d, Init, Linear, MaxPool2d, Module};
use memcore::ops;

use super::recompute::Blocks;
use super::{Architecture, Defaults, Input, ModelOptions, Recompute, Task, image_task};
use crate::error::Result;

/// Which of the family.
#[derive(Clone, Copy)]
struct Depth {
    name: &'static str,
    /// Blocks of each of the four stages.
    blocks: [usize; 4],
    /// Blocks of three convolutions whose result is four times as wide, instead of two.
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
        let first = Conv2dGeometry { stride: [2, 2], padding: [3, 3], ..Conv2dGeometry::default() };
        let overlapping = Pool2dGeometry { window: [3, 3], stride: [2, 2], padding: [1, 1] };
        let stem = ConvNorm::new(init, ["conv1", "bn1"], [3, self.width], 7, first)?;
        let pool = MaxPool2d::new(&init.at("maxpool"), overlapping);
        let mut channels = self.width;
        let mut blocks = Vec::new();
        for (stage, &count) in self.depth.blocks.iter().enumerate() {
            let at = init.at(format!("layer{}", stage + 1));
            for i in 0..count {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                let block = Block::new(&at.at(i), self.depth.bottleneck, channels, self.width << stage, stride)?;
                channels = block.outputs;
                blocks.push(block);
            }
        }
        let blocks = Blocks::new(blocks, &self.recompute);
        let head = Linear::new(&init.at("fc"), channels, self.classes, true)?;
        Ok(Box::new(Network { scope: init.scope(), stem, pool, blocks, head }))
    }
}

struct Network {
    scope: ScopeId,
    stem: ConvNorm,
    pool: MaxPool2d,
    blocks: Blocks<Block>,
    head: Linear,
}

impl Module for Network {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut x = ops::relu_(&self.stem.forward(x)?)?;
        x = self.pool.forward(&x)?;
        x = self.blocks.forward(x, &[], |block, x, _| block.forward(x))?;
        x = ops::adaptive_avg_pool2d(&x, [1, 1])?;
        x = ops::flatten(&x, 1)?;
        self.head.forward(&x)
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

/// Convolutions whose result is added to the input, or to its projection where the sizes change.
struct Block {
    scope: ScopeId,
    convs: Vec<ConvNorm>,
    projection: Option<ConvNorm>,
    outputs: usize,
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
        Ok(Self { scope: init.scope(), convs, projection, outputs })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut out = self.convs[0].forward(x)?;
        for conv in &self.convs[1..] {
            out = ops::relu_(&out)?;
            out = conv.forward(&out)?;
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
