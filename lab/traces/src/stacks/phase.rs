//! Tells the part of a training step by its stack.

use super::frame::{Origin, origin};
use super::native;
use crate::snapshot::{FrameText, Snapshot, StackId};

/// A part of a program that trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A module is moved to the card, or its weights are loaded or made.
    Setup,
    /// A batch is made, or moved to the card, or something else outside of the network.
    Input,
    /// The forward pass, or anything else that the program computes.
    Forward,
    /// The forward pass of a checkpointed part, repeated in the backward pass.
    Recompute,
    /// The backward pass.
    Backward,
    /// A step of an optimizer.
    Optimizer,
    /// Gradients are cleared.
    ZeroGrad,
}

impl Phase {
    /// Returns the part in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Phase::Setup => "while the network is set up",
            Phase::Input => "outside of the network, as a batch is made or moved",
            Phase::Forward => "in the forward pass",
            Phase::Recompute => "in the backward pass, while a checkpointed part is computed again",
            Phase::Backward => "in the backward pass",
            Phase::Optimizer => "in the optimizer",
            Phase::ZeroGrad => "while gradients are cleared",
        }
    }

    /// True if a library asked for scratch: that is not a gradient in any part.
    pub(super) fn is_workspace(snapshot: &Snapshot, stack: StackId) -> bool {
        snapshot.stack(stack).any(|frame| native::is_workspace(frame.name))
    }

    /// Returns the part of a stack with frames; `None` if the stack does not tell.
    pub(super) fn from_stack(snapshot: &Snapshot, stack: StackId) -> Option<Self> {
        let (mut python, mut native_only, mut engine, mut found) = (false, false, false, None);
        let (mut in_module, mut operator) = (false, None);
        for frame in snapshot.stack(stack) {
            if frame.filename == "phase" && frame.line == 0 {
                return of_our_own(frame.name);
            }
            if origin(&frame) == Origin::Native {
                native_only = true;
                engine |= native::is_engine(frame.name);
                if !python {
                    operator = native::operator(frame.name).or(operator);
                }
                continue;
            }
            python = true;
            in_module |= frame.name == "_call_impl";
            found = stronger(found, of_frame(&frame));
        }
        match (engine, found) {
            (true, Some(Phase::Recompute)) => Some(Phase::Recompute),
            (true, _) => Some(Phase::Backward),
            (false, found @ Some(_)) => found,
            // Outside of every module, the script's own line moves or makes a batch.
            (false, None) if python && !in_module && operator.is_some_and(|name| MAKES_BATCH.contains(&name)) => {
                Some(Phase::Input)
            }
            (false, None) if python => Some(Phase::Forward),
            // A stack of C++ only and without the engine is from the program's own threads.
            (false, None) => native_only.then_some(Phase::Forward),
        }
    }
}

/// Returns the part of a frame of our own histories, which name the phase.
fn of_our_own(name: &str) -> Option<Phase> {
    Some(match name {
        "model" => Phase::Setup,
        "input" => Phase::Input,
        "backward" => Phase::Backward,
        "step" => Phase::Optimizer,
        "zero_grad" => Phase::ZeroGrad,
        "forward" | "loss" => Phase::Forward,
        _ => return None,
    })
}

/// Returns the more specific of two parts: what runs inside an optimizer step belongs to it.
fn stronger(before: Option<Phase>, now: Option<Phase>) -> Option<Phase> {
    let rank = |phase: Option<Phase>| match phase {
        None => 0,
        Some(Phase::Forward) => 1,
        Some(Phase::Input) => 2,
        Some(Phase::Setup) => 3,
        Some(Phase::ZeroGrad) => 4,
        Some(Phase::Optimizer) => 5,
        Some(Phase::Backward) => 6,
        Some(Phase::Recompute) => 7,
    };
    if rank(now) > rank(before) { now } else { before }
}

/// Functions of the program and of libraries that move a batch.
const MOVES_BATCH: [&str; 8] = [
    "send_to_device",
    "_prepare_input",
    "_prepare_inputs",
    "move_data_to_device",
    "batch_to_device",
    "transfer_batch_to_device",
    "_apply_batch_transfer_handler",
    "to_device",
];

/// Operators that move or make a batch where no module calls them.
const MAKES_BATCH: [&str; 9] = ["to", "_to_copy", "empty", "zeros", "ones", "rand", "randn", "randint", "arange"];

/// Functions that load or make weights.
const SETS_UP: [&str; 9] = [
    "_apply",
    "reset_parameters",
    "_init_weights",
    "from_pretrained",
    "load_state_dict",
    "_load_from_state_dict",
    "_load_state_dict_into_meta_model",
    "set_module_tensor_to_device",
    "_broadcast_coalesced",
];

fn of_frame(frame: &FrameText<'_>) -> Option<Phase> {
    let file = frame.filename.replace('\\', "/");
    let in_optimizer = file.contains("/optim/") || file.contains("/optimizer") || file.contains("/optimizers/");
    match frame.name {
        "zero_grad" => Some(Phase::ZeroGrad),
        "step" | "_init_group" if in_optimizer => Some(Phase::Optimizer),
        "_engine_run_backward" => Some(Phase::Backward),
        "backward" if file.contains("/torch/") => Some(Phase::Backward),
        "recompute_fn" | "unpack_hook" if file.contains("/utils/checkpoint") => Some(Phase::Recompute),
        name if SETS_UP.contains(&name) => Some(Phase::Setup),
        "__init__" if file.contains("/torch/nn/modules/") => Some(Phase::Setup),
        name if MOVES_BATCH.contains(&name) => Some(Phase::Input),
        _ => None,
    }
}
