//! A network split over devices by its layers, fed with micro-batches: pipeline parallelism.
//!
//! Each device has a *stage*: some of the network's pieces, their parameters, gradients and optimizer states. The result of one stage is moved to the
//! next one's device by [`ops::to_device`](memcore::ops::to_device), whose backward moves the gradient back; so the graph of a micro-batch runs
//! through all devices. A [`Schedule`] gives the order of each device's forward and backward passes, which determines how many micro-batches'
//! activations it holds at once.
//!
//! A [`Chain`] is a network of pieces one after the other; any network whose stages lie on devices is [`Staged`].
//!
//! A parameter that the first and the last stage both use (tied embeddings) is on both devices: the copy's gradient is added to that of the original,
//! and both are updated with the sum, as in Megatron-LM. One loss scaler and one gradient norm cover all devices, as PyTorch's do for parameters on
//! several.
//!
//! The passes run one after the other, in an order that every device's own schedule allows: each device's ledger sees what it would see if all worked
//! at once.

mod chain;
mod cut;
mod figures;
mod joint;
mod schedule;
mod stage;
mod staged;
mod trainer;

pub use chain::Chain;
pub use cut::Cut;
pub use figures::{PipelineResult, StageFigures};
pub use schedule::{Pass, Schedule, Work};
pub use stage::Stage;
pub use staged::{Built, PipelineSettings, Staged};
pub use trainer::{SplitStep, finish, run, train, train_from, trainer, trainer_of};
