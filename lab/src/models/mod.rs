//! What one can train: small files that read whole, one per network, and one list of all.

mod convnext;
mod densenet;
mod gpt;
mod keeping;
mod mlp;
mod mobilenet;
mod pieces;
mod recompute;
mod resnet;
mod seq2seq;
mod simple_cnn;
mod small_network;
mod vgg;

pub use gpt::GptConfig;
pub(crate) use gpt::causal_mask;
pub(crate) use pieces::{Measured, measured};
pub use recompute::Recompute;

use memcore::nn::{Converted, Init, ListSlot, Module, Parameter, Training, VariableSlot};
use memcore::{Array, DType, Device};
use serde::Serialize;

use crate::error::{Error, Result};

/// What goes into a network: sizes without the batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// Floats of these sizes per example.
    Values(Vec<usize>),
    /// Token indices below `vocabulary`, `length` of them per example.
    Tokens {
        /// Tokens per example.
        length: usize,
        /// Number of different tokens.
        vocabulary: usize,
    },
}

/// What comes out and is compared with the targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Logits against class indices. For tokens: at every position.
    CrossEntropy {
        /// Number of classes.
        classes: usize,
    },
    /// Logits at every position against the token that follows there; the last position has none.
    NextToken {
        /// Number of different tokens.
        classes: usize,
    },
    /// Values against values of these sizes per example.
    MeanSquaredError {
        /// Sizes of a target.
        dims: Vec<usize>,
    },
    /// Logits at every position against the example's own tokens in reverse order.
    Reversal {
        /// Number of different tokens.
        classes: usize,
    },
}

/// What a network is trained to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// What goes in.
    pub input: Input,
    /// What the result is compared with.
    pub loss: Loss,
}

/// A network on a device, with its parameters.
pub struct Model {
    /// Masks and the like, neither trained nor saved. They are the module's own, and go with it.
    pub constants: Vec<Array>,
    /// Tensors that are part of it and not trained, with their paths: running statistics. They are the module's own, and go with it.
    pub buffers: Vec<(String, Array)>,
    /// The network.
    pub module: Box<dyn Module>,
    /// Its parameters, in the order of their creation until a trainer has put them into the optimizer's.
    pub parameters: Vec<Parameter>,
    /// Switches between training and evaluation.
    pub training: Training,
    /// Variables of the script around it that its layers set.
    pub variables: Vec<VariableSlot>,
    /// Lists of the script around it that its layers append to.
    pub lists: Vec<ListSlot>,
    /// What it is trained to do.
    pub task: Task,
}

/// How a network differs from its default form; what it does not have is an error, not silence.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelOptions {
    /// Layers (mlp: hidden layers; gpt: blocks).
    pub layers: Option<usize>,
    /// Width (mlp: neurons per hidden layer; gpt: embedding; seq2seq-attention: embedding and state; resnet, vgg, mobilenet_v2, densenet121, convnext:
    /// channels of the first stage).
    pub width: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Tokens per example.
    pub sequence: Option<usize>,
    /// Number of different tokens.
    pub vocabulary: Option<usize>,
    /// Features per example (mlp).
    pub features: Option<usize>,
    /// Side of the pictures (resnet, vgg, mobilenet_v2, densenet121, convnext).
    pub image: Option<usize>,
    /// Classes.
    pub classes: Option<usize>,
    /// Probability of dropping (convnext: the last block for an example).
    pub dropout: Option<f64>,
    /// The fused attention kernel instead of the written-out form.
    pub fused_attention: bool,
    /// The output layer shares the token table.
    pub tied: bool,
    /// Intermediate results go into a list that only the schedule's `clear` empties (two-layer: the hidden activations; seq2seq-attention: the
    /// attention weights).
    pub keep_intermediate: bool,
    /// Blocks that are computed again in backward.
    pub recompute: Recompute,
}

/// A kind of network: its name, what it is, what it does, and how it is built.
pub trait Architecture: Send + Sync {
    /// What the command line calls it.
    fn name(&self) -> &str;

    /// One line: layers and sizes.
    fn description(&self) -> String;

    /// What it is trained to do.
    fn task(&self) -> Task;

    /// The optimizer, batch and learning rate that it comes with.
    fn defaults(&self) -> Defaults;

    /// Whether it can be trained in batches of so many examples, with weights of this type.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is not represented, with the reason.
    fn check(&self, _batch: usize, _weights: DType) -> Result<()> {
        Ok(())
    }

    /// The network, with parameters made through `init`.
    ///
    /// # Errors
    /// Those of the device, and sizes that do not fit.
    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>>;

    /// Why the network cannot be split over devices; `None` where it is a chain of [`pieces`](Self::pieces).
    fn indivisible(&self) -> Option<&'static str> {
        Some("it is not built as a chain of pieces")
    }

    /// The network as a chain of pieces, each of which lies on one device: the result of one is the next one's input. A piece's parameters are
    /// made through what `at` gives for its number; they are the same, in the same order, as [`build`](Self::build) makes, save
    /// for copies of what the [ends share](Self::shares_ends).
    ///
    /// # Errors
    /// As [`build`](Self::build).
    fn pieces(&self, _at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        Ok(Vec::new())
    }

    /// Whether the last piece computes with a parameter of the first one: tied embeddings. Where the two lie on different devices, each has
    /// it ([`Init::shared`]).
    fn shares_ends(&self) -> bool {
        false
    }

    /// The parameters, given in the order of their creation, in the order of PyTorch's `model.parameters()`.
    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameters
    }
}

/// Where the parameters of each piece of a split network are made.
pub type Places<'a> = dyn Fn(usize) -> Init + 'a;

/// What a network is trained with unless the user says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Defaults {
    /// Examples per step.
    pub batch: usize,
    /// `sgd`, `momentum`, `adam`, `adamw`.
    pub optimizer: &'static str,
    /// Learning rate.
    pub lr: f64,
}

/// A constructor from options.
type Constructor = fn(&ModelOptions) -> Result<Box<dyn Architecture>>;

/// Every network by name.
pub const ALL: &[(&str, Constructor)] = &[
    ("linear", mlp::linear),
    ("two-layer", mlp::two_layer),
    ("mlp", mlp::mlp),
    ("simple-cnn", simple_cnn::simple_cnn),
    ("small-network", small_network::small_network),
    ("larger-conv", small_network::larger_conv),
    ("gpt", gpt::gpt),
    ("gpt2", gpt::gpt2),
    ("resnet18", resnet::resnet18),
    ("resnet34", resnet::resnet34),
    ("resnet50", resnet::resnet50),
    ("vgg16", vgg::vgg16),
    ("mobilenet_v2", mobilenet::mobilenet_v2),
    ("densenet121", densenet::densenet121),
    ("convnext-tiny", convnext::convnext_tiny),
    ("convnext-small", convnext::convnext_small),
    ("convnext-base", convnext::convnext_base),
    ("convnext-large", convnext::convnext_large),
    ("seq2seq-attention", seq2seq::seq2seq_attention),
];

/// The network of that name, with these options.
///
/// # Errors
/// [`Error::Usage`] for an unknown name (the known ones are listed) or an option that it does not have.
pub fn architecture(name: &str, options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    match ALL.iter().find(|(known, _)| *known == name) {
        Some((_, construct)) => construct(options),
        None => {
            let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            Err(Error::usage("--model", format!("unknown model {name:?}; known: {}", known.join(", "))))
        }
    }
}

/// Classifying pictures of three colours, 224 × 224 in 1,000 classes unless said otherwise. `multiple` is what a side must be a multiple of.
fn image_task(options: &ModelOptions, multiple: usize) -> Result<(Task, usize)> {
    let (side, classes) = (options.image.unwrap_or(224), options.classes.unwrap_or(1000));
    if side == 0 || !side.is_multiple_of(multiple) {
        return Err(Error::usage("--image", format!("{side}: a multiple of {multiple} is needed")));
    }
    for (option, size) in [("--classes", classes), ("--width", options.width.unwrap_or(1))] {
        if size == 0 {
            return Err(Error::usage(option, "must be at least 1"));
        }
    }
    Ok((Task { input: Input::Values(vec![3, side, side]), loss: Loss::CrossEntropy { classes } }, classes))
}

impl Model {
    /// Builds a network on a device. Equal seeds give equal parameters everywhere.
    ///
    /// # Errors
    /// Those of the device, and sizes that do not fit.
    pub fn build(architecture: &dyn Architecture, device: &Device, dtype: DType, seed: u64) -> Result<Self> {
        let init = Init::new(device, dtype, seed);
        let module = architecture.build(&init)?;
        Ok(Self::made(module, &init, architecture.task()))
    }

    /// Around a module whose parameters were made through `init`.
    pub(crate) fn made(module: Box<dyn Module>, init: &Init, task: Task) -> Self {
        let (parameters, training) = (init.parameters(), init.training());
        let (buffers, variables, lists) = (init.buffers(), init.variables(), init.lists());
        Self { constants: init.constants(), buffers, module, parameters, training, variables, lists, task }
    }

    /// The same network in another type: its parameters and buffers are converted one by one, each old one let go when the new one is there, as
    /// `model.to(dtype)` does.
    ///
    /// # Errors
    /// Those of the device.
    pub fn cast(self, architecture: &dyn Architecture, device: &Device, dtype: DType, seed: u64) -> Result<Self> {
        let Self { constants, buffers, module, parameters, .. } = self;
        drop(module);
        let init = Init::converting(device, dtype, seed, Converted { parameters, buffers, constants });
        let module = architecture.build(&init)?;
        Ok(Self::made(module, &init, architecture.task()))
    }

    /// Number of trained values; shared ones count once.
    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|p| p.array().numel() as u64).sum()
    }
}

impl ModelOptions {
    /// A form of the named network that trains in well under a second on anything: what backends are compared with.
    #[must_use]
    pub fn small(name: &str) -> Self {
        let default = ModelOptions::default();
        match name {
            "gpt" | "gpt2" => ModelOptions {
                layers: Some(2),
                width: Some(16),
                heads: Some(2),
                sequence: Some(8),
                vocabulary: Some(24),
                ..default
            },
            "resnet18" | "resnet34" | "resnet50" => {
                ModelOptions { width: Some(4), image: Some(32), classes: Some(5), ..default }
            }
            "mobilenet_v2" => ModelOptions { width: Some(2), image: Some(32), classes: Some(5), ..default },
            "densenet121" => ModelOptions { width: Some(2), image: Some(32), classes: Some(5), ..default },
            "convnext-tiny" | "convnext-small" | "convnext-base" | "convnext-large" => {
                ModelOptions { width: Some(4), image: Some(32), classes: Some(5), ..default }
            }
            "seq2seq-attention" => ModelOptions { width: Some(16), sequence: Some(4), vocabulary: Some(6), ..default },
            "vgg16" => ModelOptions { width: Some(1), classes: Some(5), ..default },
            _ => default,
        }
    }

    /// Fails when an option outside `supported` was given.
    ///
    /// # Errors
    /// [`Error::Usage`] naming model and option.
    pub fn only(&self, model: &str, supported: &[&str]) -> Result<()> {
        let given = [
            ("layers", self.layers.is_some()),
            ("width", self.width.is_some()),
            ("heads", self.heads.is_some()),
            ("sequence", self.sequence.is_some()),
            ("vocabulary", self.vocabulary.is_some()),
            ("features", self.features.is_some()),
            ("image", self.image.is_some()),
            ("classes", self.classes.is_some()),
            ("dropout", self.dropout.is_some()),
            ("attention", self.fused_attention),
            ("tied", self.tied),
            ("keep-intermediate", self.keep_intermediate),
            ("checkpoint", self.recompute != Recompute::None),
        ];
        match given.iter().find(|(name, given)| *given && !supported.contains(name)) {
            Some((name @ "checkpoint", _)) => {
                Err(Error::usage(format!("--{name}"), format!("model {model} has no blocks that it names")))
            }
            Some((name, _)) => Err(Error::usage(format!("--{name}"), format!("model {model} has no such option"))),
            None => Ok(()),
        }
    }
}
