//! DenseNet-121 (Huang et al. 2017), as torchvision builds it: each layer's input is the results of all earlier layers of its block, concatenated
//! anew.

use std::sync::Arc;

use lab_base::error::{Error, Result};
use memcore::Tensor;
use memcore::autograd::checkpoint;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use memcore::context;
use memcore::memory::ScopeId;
use memcore::nn::{Activation, AvgPool2d, BatchNorm2d, Conv2d, Init, Linear, MaxPool2d, Module, Sequential, Training};
use memcore::ops;

use super::options::image_task;
use super::{Architecture, Defaults, Input, ModelOptions, Places, Recompute, Task};

/// Layers of each of the four blocks.
const LAYERS: [usize; 4] = [6, 12, 24, 16];

/// Channels inside a layer, as a multiple of the channels that it outputs.
const BOTTLENECK: usize = 4;

struct DenseNet {
    /// Channels before the first block.
    width: usize,
    /// Channels that a layer outputs.
    growth: usize,
    task: Task,
    classes: usize,
    dropout: f64,
    /// `memory_efficient`: the concatenation inside a layer is recomputed in backward.
    again: bool,
}

/// 8.0 million parameters.
pub(super) fn densenet121(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only("densenet121", &["width", "image", "classes", "dropout", "checkpoint"])?;
    let again = match options.recompute {
        Recompute::None => false,
        Recompute::Blocks => true,
        _ => return Err(Error::usage("checkpoint", "densenet121 knows none and blocks (its memory_efficient form)")),
    };
    // Five halvings; the last three, averages, need a whole window.
    let (task, classes) = image_task(options, 1)?;
    if options.image.is_some_and(|side| side < 29) {
        return Err(Error::usage("image", "29 at least, for five halvings"));
    }
    let width = options.width.unwrap_or(64);
    if !width.is_multiple_of(2) {
        return Err(Error::usage("width", "must be even: each layer gives half as many channels"));
    }
    let growth = width / 2;
    Ok(Box::new(DenseNet { width, growth, task, classes, dropout: options.dropout.unwrap_or(0.0), again }))
}

impl DenseNet {
    /// Input channels of a block.
    fn inputs(&self, block: usize) -> usize {
        (0..block).fold(self.width, |channels, before| (channels + LAYERS[before] * self.growth) / 2)
    }

    fn stem(&self, init: &Init) -> memcore::Result<Sequential> {
        let features = init.at("features");
        let first = Conv2dGeometry { stride: [2, 2], padding: [3, 3], ..Conv2dGeometry::default() };
        let overlapping = Pool2dGeometry { window: [3, 3], stride: [2, 2], padding: [1, 1] };
        let mut modules = Sequential::new();
        modules.push(Conv2d::new(&features.at("conv0"), 3, self.width, 7, first, false)?);
        modules.push(BatchNorm2d::new(&features.at("norm0"), self.width)?);
        modules.push(Activation::new(&features.at("relu0"), ops::relu_));
        modules.push(MaxPool2d::new(&features.at("pool0"), overlapping));
        Ok(modules)
    }

    /// A block, and the layers that halve channels and sides between it and the next one.
    fn block(&self, init: &Init, number: usize) -> memcore::Result<Sequential> {
        let (features, inputs) = (init.at("features"), self.inputs(number));
        let at = features.at(format!("denseblock{}", number + 1));
        let layer = |i: usize| {
            let init = at.at(format!("denselayer{}", i + 1));
            let inner = Arc::new(Joined::new(&init, [inputs + i * self.growth, BOTTLENECK * self.growth])?);
            Ok(Layer { inner, rest: Rest::new(&init, self)? })
        };
        let layers: memcore::Result<Vec<Layer>> = (0..LAYERS[number]).map(layer).collect();
        let mut modules = Sequential::new();
        modules.push(Block { scope: at.scope(), layers: layers?, again: self.again });
        if number + 1 < LAYERS.len() {
            let at = features.at(format!("transition{}", number + 1));
            let joined = inputs + LAYERS[number] * self.growth;
            let halves = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
            let mut transition = Sequential::new();
            transition.push(BatchNorm2d::new(&at.at("norm"), joined)?);
            transition.push(Activation::new(&at.at("relu"), ops::relu_));
            transition.push(Conv2d::new(&at.at("conv"), joined, joined / 2, 1, Conv2dGeometry::default(), false)?);
            transition.push(AvgPool2d::new(&at.at("pool"), halves));
            modules.push(transition);
        }
        Ok(modules)
    }

    /// The last layer of `features`, which frees the results of the blocks, and the layers after it.
    fn head(&self, init: &Init) -> memcore::Result<Sequential> {
        let last = LAYERS.len() - 1;
        let channels = self.inputs(last) + LAYERS[last] * self.growth;
        let mut head = Sequential::new();
        head.push(BatchNorm2d::new(&init.at("features").at("norm5"), channels)?);
        let classifier = Linear::new(&init.at("classifier"), channels, self.classes, true)?;
        head.push(Head { scope: init.scope(), classifier });
        Ok(head)
    }
}

impl Architecture for DenseNet {
    fn name(&self) -> &str {
        "densenet121"
    }

    fn description(&self) -> String {
        let Input::Values(dims) = &self.task.input else { return String::new() };
        format!("densely connected blocks of {LAYERS:?} layers, {} channels each, {dims:?}", self.growth)
    }

    fn task(&self) -> Task {
        self.task.clone()
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, optimizer: "momentum", lr: 0.01 }
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        // One chain: a block's input is freed when the block is done.
        let mut chain = self.stem(init)?;
        for number in 0..LAYERS.len() {
            chain.append(self.block(init, number)?);
        }
        chain.append(self.head(init)?);
        Ok(Box::new(chain))
    }

    fn not_channels_last(&self) -> Option<String> {
        None
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(self.stem(&at(0))?)];
        for number in 0..LAYERS.len() {
            pieces.push(Box::new(self.block(&at(1 + number), number)?));
        }
        pieces.push(Box::new(self.head(&at(1 + LAYERS.len()))?));
        Ok(pieces)
    }
}

/// Layers whose results are collected.
struct Block {
    scope: ScopeId,
    layers: Vec<Layer>,
    again: bool,
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut features = vec![x.clone()];
        for layer in &self.layers {
            let new = layer.forward(&features, self.again)?;
            features.push(new);
        }
        let out = ops::cat(&features.iter().collect::<Vec<_>>(), 1)?;
        // The last result is a variable of its own. The others are freed with their list, from its end.
        let last = features.pop();
        while features.pop().is_some() {}
        drop(last);
        Ok(out)
    }
}

struct Layer {
    inner: Arc<Joined>,
    rest: Rest,
}

impl Layer {
    fn forward(&self, features: &[Tensor], again: bool) -> memcore::Result<Tensor> {
        let bottleneck = if again {
            let inner = self.inner.clone();
            checkpoint(features, move |features| inner.forward(features))?
        } else {
            self.inner.forward(features)?
        };
        self.rest.forward(&bottleneck)
    }
}

/// `bn_function`: the earlier results, concatenated, normalised, and narrowed to a bottleneck.
struct Joined {
    norm1: BatchNorm2d,
    conv1: Conv2d,
}

impl Joined {
    fn new(init: &Init, [inputs, outputs]: [usize; 2]) -> memcore::Result<Self> {
        let norm1 = BatchNorm2d::new(&init.at("norm1"), inputs)?;
        let points = Conv2dGeometry::default();
        let conv1 = Conv2d::new(&init.at("conv1"), inputs, outputs, 1, points, false)?;
        Ok(Self { norm1, conv1 })
    }

    fn forward(&self, features: &[Tensor]) -> memcore::Result<Tensor> {
        let joined = ops::cat(&features.iter().collect::<Vec<_>>(), 1)?;
        let active = ops::relu_(&self.norm1.forward(&joined)?)?;
        self.conv1.forward(&active)
    }
}

/// The rest of a layer: from a bottleneck to the new channels.
struct Rest {
    training: Training,
    norm2: BatchNorm2d,
    conv2: Conv2d,
    dropout: f64,
}

impl Rest {
    fn new(init: &Init, net: &DenseNet) -> memcore::Result<Self> {
        let bottleneck = BOTTLENECK * net.growth;
        let norm2 = BatchNorm2d::new(&init.at("norm2"), bottleneck)?;
        let same = Conv2dGeometry { padding: [1, 1], ..Conv2dGeometry::default() };
        let conv2 = Conv2d::new(&init.at("conv2"), bottleneck, net.growth, 3, same, false)?;
        Ok(Self { training: init.training(), norm2, conv2, dropout: net.dropout })
    }

    fn forward(&self, bottleneck: &Tensor) -> memcore::Result<Tensor> {
        let new = {
            let active = ops::relu_(&self.norm2.forward(bottleneck)?)?;
            self.conv2.forward(&active)?
        };
        ops::dropout(&new, self.dropout, self.training.is_on())
    }
}

/// Layers after `features`: from channels to classes.
struct Head {
    scope: ScopeId,
    classifier: Linear,
}

impl Module for Head {
    fn forward(&self, features: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut out = ops::relu_(features)?;
        out = ops::adaptive_avg_pool2d(&out, [1, 1])?;
        out = ops::flatten(&out, 1)?;
        self.classifier.forward(&out)
    }
}
