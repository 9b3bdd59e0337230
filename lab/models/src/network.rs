//! Kinds of networks, the tasks that they are trained for, and networks on a device.

use lab_base::error::Result;
use memcore::nn::{Converted, Init, ListSlot, Module, Parameter, Training, VariableSlot, trained_values};
use memcore::{Array, DType};
use serde::Serialize;

/// Input of a network, with its sizes without the batch.
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

/// The loss, and what it compares with the targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Logits against class indices. For tokens: at every position.
    CrossEntropy {
        /// Number of classes.
        classes: usize,
    },
    /// Logits at every position against the next token; the last position has none.
    NextToken {
        /// Number of different tokens.
        classes: usize,
    },
    /// Values against values of these sizes per example.
    MeanSquaredError {
        /// Sizes of a target, per example.
        dims: Vec<usize>,
    },
    /// The network computes its own loss, from labels of its own.
    Inside,
    /// Logits at every position against the example's own tokens in reverse order.
    Reversal {
        /// Number of different tokens.
        classes: usize,
    },
}

/// The task that a network is trained for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Input.
    pub input: Input,
    /// Loss.
    pub loss: Loss,
}

/// A network on a device, with its parameters.
pub struct Model {
    /// Masks and similar constants, neither trained nor saved. The module owns them, and they are freed with it.
    pub constants: Vec<Array>,
    /// Buffers with their paths: tensors of the module that are not trained, such as running statistics. The module owns them, and they are freed
    /// with it.
    pub buffers: Vec<(String, Array)>,
    /// The network.
    pub module: Box<dyn Module>,
    /// Parameters. They are in the order of their creation until a trainer puts them into the optimizer's order.
    pub parameters: Vec<Parameter>,
    /// Switches between training and evaluation.
    pub training: Training,
    /// Variables of the surrounding script that layers set.
    pub variables: Vec<VariableSlot>,
    /// Lists of the surrounding script that layers append to.
    pub lists: Vec<ListSlot>,
    /// The task that it is trained for.
    pub task: Task,
}

/// A kind of network: its name, its description, its task, and how to build it.
pub trait Architecture: Send + Sync {
    /// Name on the command line.
    fn name(&self) -> &str;

    /// One line of description: layers and sizes.
    fn description(&self) -> String;

    /// The task that it is trained for.
    fn task(&self) -> Task;

    /// Its default optimizer, batch and learning rate.
    fn defaults(&self) -> Defaults;

    /// Checks that the network can be trained with this batch and this type of weights.
    ///
    /// # Errors
    /// [`Error::Usage`](lab_base::error::Error::Usage) for what is not supported, with the reason.
    fn check(&self, _batch: usize, _weights: DType) -> Result<()> {
        Ok(())
    }

    /// Builds the network; its parameters are made through `init`.
    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>>;

    /// Why the network cannot be split over devices; `None` if it is a chain of [`pieces`](Self::pieces).
    fn indivisible(&self) -> Option<&'static str> {
        Some("it is not built as a chain of pieces")
    }

    /// True if its attention is one operator, false if it is written out; `None` if there is no such choice.
    fn has_fused_attention(&self) -> Option<bool> {
        None
    }

    /// Why all batches have as many tokens as the network takes; `None` if they may have fewer.
    fn one_length(&self) -> Option<&'static str> {
        Some("vramlab supports it for gpt, gpt2 and networks of transformers alone")
    }

    /// Why the network cannot be evaluated between steps; `None` if it can.
    fn not_evaluated(&self) -> Option<String> {
        None
    }

    /// Why the network cannot be put in channels-last; `None` if its memory is recorded then.
    fn not_channels_last(&self) -> Option<String> {
        Some("vramlab does not support this network".into())
    }

    /// Builds the network as a chain of pieces, each on one device: the result of one is the next one's input. A piece's parameters are made through
    /// the `Init` that `at` returns for its number. They are the same, in the same order, as those of [`build`](Self::build), except for copies of
    /// what the [ends share](Self::shares_ends).
    fn pieces(&self, _at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        Ok(Vec::new())
    }

    /// Whether the last piece computes with a parameter of the first one, as with tied embeddings. If the two pieces are on different devices, each
    /// has the parameter ([`Init::shared`]).
    fn shares_ends(&self) -> bool {
        false
    }

    /// Sorts the parameters from the order of their creation into that of PyTorch's `model.parameters()`.
    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameters
    }
}

/// Returns, for each piece of a split network, the [`Init`] that makes its parameters.
pub type Places<'a> = dyn Fn(usize) -> Init + 'a;

/// Settings that a network is trained with unless the user says otherwise.
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
    /// Builds a network whose parameters are made through `init`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn build(architecture: &dyn Architecture, init: &Init) -> Result<Self> {
        Ok(Self::made(architecture.build(init)?, init, architecture.task()))
    }

    /// Wraps a module whose parameters were made through `init`.
    pub fn made(module: Box<dyn Module>, init: &Init, task: Task) -> Self {
        let (parameters, training) = (init.parameters(), init.training());
        let (buffers, variables, lists) = (init.buffers(), init.variables(), init.lists());
        Self { constants: init.constants(), buffers, module, parameters, training, variables, lists, task }
    }

    /// Builds the network again through the `Init` that `init` makes of its contents: each old tensor is freed when its new one exists, as
    /// `model.to(dtype)` and `model.to(memory_format=torch.channels_last)` do.
    ///
    /// # Errors
    /// Those of the device.
    pub fn rebuilt(self, architecture: &dyn Architecture, init: impl FnOnce(Converted) -> Init) -> Result<Self> {
        let Self { constants, buffers, module, parameters, .. } = self;
        drop(module);
        Self::build(architecture, &init(Converted::from_lists(parameters, buffers, constants)))
    }

    /// Number of trained values; shared ones count once.
    pub fn parameter_count(&self) -> u64 {
        trained_values(&self.parameters)
    }
}
