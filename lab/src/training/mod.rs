//! One training step, with its phases marked, and runs of many.

mod checkpoint;
mod loss;
mod optimizer;
mod run;
mod schedule;
mod settings;
mod source;
mod trainer;
mod update;

pub use checkpoint::{Begin, Continuation, HostTensor, StateFile, TrainingState};
pub(crate) use checkpoint::{Parts, data_name};
pub use loss::loss;
pub use optimizer::{OptimizerKind, OptimizerSettings};
pub use run::{Accuracy, Failed, Partial, Progress, RunResult, evaluate, train, train_from};
pub(crate) use run::{Steps, Training, evaluate_with, run};
pub use schedule::{Phase, RowAfter, Schedule};
pub use settings::{Precision, RunSettings};
pub use source::{Batch, Source};
pub use trainer::Trainer;
pub(crate) use update::Update;
