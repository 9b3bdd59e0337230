//! A network split over devices by its layers, fed with micro-batches: pipeline parallelism.
//!
//! Each device has a *stage*: some of the network's pieces, their parameters, gradients and optimizer states. What one stage gives is moved to the
//! next one's device by [`ops::to_device`](memcore::ops::to_device), whose backward moves the gradient back; so the graph of a micro-batch
//! runs through all devices. A [`Schedule`] says in which order each device has its forward and backward passes, and with that how many
//! micro-batches' activations it holds at once.
//!
//! A parameter that the first and the last stage both use (tied embeddings) lies on both devices: what backward gives the copy is added to the
//! original's gradient, and both are stepped with the sum, as Megatron-LM does. One loss scaler and one norm are over all devices, as PyTorch's are
//! over parameters of several.
//!
//! The work is done one piece after the other, in an order that every device's own schedule allows: what a device's ledger sees is what it would
//! see if all worked at once.

mod cut;
mod figures;
mod joint;
mod schedule;
mod stage;
mod trainer;

pub use cut::Cut;
pub use figures::{PipelineResult, StageFigures};
pub use schedule::{Pass, Schedule, Work};
pub use trainer::{PipelineSettings, SplitStep, finish, train, train_from, trainer};
