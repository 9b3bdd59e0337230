//! One training step, with its phases marked, and runs of many.

mod checkpoint;
mod optimizer;
mod run;
mod schedule;
mod settings;
mod source;
mod trainer;
mod update;

pub(crate) use checkpoint::Parts;
pub use checkpoint::{Begin, Continuation, HostTensor, StateFile, TrainingState};
pub use optimizer::{OptimizerKind, OptimizerSettings};
pub use run::{Accuracy, Failed, Partial, Progress, RunResult, evaluate, loss, train, train_from};
pub(crate) use run::{Steps, Training, run};
pub use schedule::{Phase, RowAfter, Schedule};
pub use settings::{Precision, RunSettings};
pub use source::{Batch, Source};
pub use trainer::Trainer;
pub(crate) use update::Update;
