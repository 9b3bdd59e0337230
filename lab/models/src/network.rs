//! A kind of network, what it is trained to do, and a network of that kind on a device.

use lab_base::error::Result;
use memcore::nn::{Converted, Init, ListSlot, Module, Parameter, Training, VariableSlot};
use memcore::{Array, DType, Device};
use serde::Serialize;

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
    /// The network computes it itself, with labels of its own.
    Inside,
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
    /// [`Error::Usage`](lab_base::error::Error::Usage) for what is not represented, with the reason.
    fn check(&self, _batch: usize, _weights: DType) -> Result<()> {
        Ok(())
    }

    /// The network, with parameters made through `init`.
    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>>;

    /// Why the network cannot be split over devices; `None` where it is a chain of [`pieces`](Self::pieces).
    fn indivisible(&self) -> Option<&'static str> {
        Some("it is not built as a chain of pieces")
    }

    /// The network as a chain of pieces, each of which lies on one device: the result of one is the next one's input. A piece's parameters are
    /// made through what `at` gives for its number; they are the same, in the same order, as [`build`](Self::build) makes, save
    /// for copies of what the [ends share](Self::shares_ends).
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

impl Model {
    /// Builds a network on a device. Equal seeds give equal parameters everywhere.
    pub fn build(architecture: &dyn Architecture, device: &Device, dtype: DType, seed: u64) -> Result<Self> {
        let init = Init::new(device, dtype, seed);
        let module = architecture.build(&init)?;
        Ok(Self::made(module, &init, architecture.task()))
    }

    /// Around a module whose parameters were made through `init`.
    pub fn made(module: Box<dyn Module>, init: &Init, task: Task) -> Self {
        let (parameters, training) = (init.parameters(), init.training());
        let (buffers, variables, lists) = (init.buffers(), init.variables(), init.lists());
        Self { constants: init.constants(), buffers, module, parameters, training, variables, lists, task }
    }

    /// The same network in another type: its parameters and buffers are converted one by one, each old one freed when the new one is there, as
    /// `model.to(dtype)` does.
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
