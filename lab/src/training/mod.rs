//! One training step, with its phases marked, and runs of many.

mod optimizer;
mod run;
mod schedule;
mod source;

pub use optimizer::{OptimizerKind, OptimizerSettings};
pub use run::{Accuracy, Progress, RunResult, RunSettings, Trainer, evaluate, loss, train};
pub use schedule::{Phase, Schedule};
pub use source::{Batch, Source};
