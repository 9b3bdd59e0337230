//! Builds the network of a model file: its layers as modules.

use lab_models::{Architecture, Defaults, Places, Task, causal_mask};
use memcore::memory::ScopeId;
use memcore::nn::{
    Activation, AvgPool2d, BatchNorm2d, Checkpoint, Conv2d, Dropout, Embedding, Fill, Flatten, GroupNorm, Init,
    LayerNorm, Linear, MaxPool2d, Module, MultiHeadAttention, Parameter, RmsNorm, Sequential, Variable,
};
use memcore::{Array, Tensor, context, ops};

use super::layers::{Layer, Op};

/// The network that a file describes.
pub(super) struct FileArchitecture {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) layers: Vec<Layer>,
    pub(super) task: Task,
    pub(super) defaults: Defaults,
}

impl Architecture for FileArchitecture {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn task(&self) -> Task {
        self.task.clone()
    }

    fn defaults(&self) -> Defaults {
        self.defaults
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(chain(init, &self.layers)?))
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let piece = |(i, layer): (usize, &Layer)| -> memcore::Result<Box<dyn Module>> {
            let mut modules = Sequential::new();
            push(&mut modules, &at(i).at(&layer.name), &layer.op)?;
            Ok(Box::new(modules))
        };
        self.layers.iter().enumerate().map(piece).collect()
    }
}

fn chain(init: &Init, layers: &[Layer]) -> memcore::Result<Sequential> {
    let mut modules = Sequential::new();
    for layer in layers {
        push(&mut modules, &init.at(&layer.name), &layer.op)?;
    }
    Ok(modules)
}

fn push(modules: &mut Sequential, init: &Init, op: &Op) -> memcore::Result<()> {
    match op {
        Op::Conv2d { inputs, outputs, kernel, geometry, bias } => {
            modules.push(Conv2d::new(init, *inputs, *outputs, *kernel, *geometry, *bias)?);
        }
        Op::Linear { inputs, outputs, bias } => modules.push(Linear::new(init, *inputs, *outputs, *bias)?),
        Op::Activation(function) => modules.push(Activation::new(init, *function)),
        Op::LeakyRelu { slope } => {
            let slope = *slope;
            modules.push(Function { scope: init.scope(), of: move |x: &Tensor| ops::leaky_relu(x, slope) });
        }
        Op::Elu { alpha } => {
            let alpha = *alpha;
            modules.push(Function { scope: init.scope(), of: move |x: &Tensor| ops::elu(x, alpha) });
        }
        Op::Upsample { factor } => {
            let factor = *factor;
            modules.push(Function { scope: init.scope(), of: move |x: &Tensor| ops::upsample_nearest2d(x, factor) });
        }
        Op::GroupNorm { groups, channels, eps } => modules.push(GroupNorm::new(init, *groups, *channels, *eps)?),
        Op::MaxPool2d(geometry) => modules.push(MaxPool2d::new(init, *geometry)),
        Op::AvgPool2d(geometry) => modules.push(AvgPool2d::new(init, *geometry)),
        Op::Flatten => modules.push(Flatten),
        Op::Dropout { p } => modules.push(Dropout::new(init, *p)?),
        Op::BatchNorm2d { channels } => modules.push(BatchNorm2d::new(init, *channels)?),
        Op::LayerNorm { width, eps } => modules.push(LayerNorm::new(init, *width, *eps)?),
        Op::RmsNorm { width, eps } => modules.push(RmsNorm::new(init, *width, *eps)?),
        Op::Embedding { rows, width, std } => {
            modules.push(Embedding::with_fill(init, *rows, *width, Fill::Normal { std: *std })?);
        }
        Op::PositionEmbedding { length, width, std } => {
            let weight = init.parameter("weight", &[*length, *width], Fill::Normal { std: *std })?;
            modules.push(PositionEmbedding { scope: init.scope(), weight });
        }
        Op::Attention { length, width, heads, options } => {
            let attention = MultiHeadAttention::new(init, *width, *heads, *options)?;
            // The fused kernel needs no matrix for a causal mask.
            let mask = if options.causal && !options.fused { Some(causal_mask(init, *length)?) } else { None };
            modules.push(SelfAttention { attention, mask });
        }
        Op::Residual(layers) => modules.push(Residual { scope: init.scope(), branch: chain(init, layers)? }),
        Op::Sequence(layers) => modules.push(chain(init, layers)?),
        Op::Variable(layers) => modules.push(Variable::new(init, chain(init, layers)?)),
        Op::Checkpoint(layers) => modules.push(Checkpoint::new(chain(init, layers)?)),
    }
    Ok(())
}

/// A function with a parameter of its own.
struct Function<F> {
    scope: ScopeId,
    of: F,
}

impl<F: Fn(&Tensor) -> memcore::Result<Tensor> + Send + Sync> Module for Function<F> {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        (self.of)(x)
    }
}

/// Adds a learned row per position.
struct PositionEmbedding {
    scope: ScopeId,
    /// `[length, width]`
    weight: Parameter,
}

impl Module for PositionEmbedding {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::add(x, self.weight.tensor())
    }
}

struct SelfAttention {
    attention: MultiHeadAttention,
    /// `[length, length]`, true above the diagonal.
    mask: Option<Array>,
}

impl Module for SelfAttention {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let mask = self.mask.clone().map(Tensor::from_array);
        self.attention.attend(x.clone(), mask.as_ref())
    }
}

/// `x + branch(x)`.
struct Residual {
    scope: ScopeId,
    branch: Sequential,
}

impl Module for Residual {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let branch = self.branch.forward(x)?;
        let _scope = context::scope(self.scope);
        ops::add(x, &branch)
    }
}
