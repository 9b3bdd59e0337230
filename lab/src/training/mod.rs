//! One training step, with its phases marked, and runs of many.

mod checkpoint;
mod evaluate;
mod loss;
mod optimizer;
mod run;
mod schedule;
mod settings;
mod source;
mod trained;
mod trainer;
mod update;

pub use checkpoint::{Begin, Continuation, HostTensor, PROFILE_KEY, StateFile, TrainingState};
pub(crate) use checkpoint::{Parts, data_name};
pub(crate) use evaluate::evaluate_with;
pub use evaluate::{Accuracy, evaluate};
pub use loss::loss;
pub(crate) use loss::loss_per;
pub use optimizer::{OptimizerKind, OptimizerSettings};
pub use run::{Failed, MAX_VALUES, Partial, Progress, RunResult, train, train_from};
pub(crate) use run::{Steps, run};
pub use schedule::{Phase, RowAfter, Schedule};
pub use settings::{Precision, RunSettings};
pub use source::{Batch, Source};
pub(crate) use trained::Training;
pub use trainer::Trainer;
pub(crate) use update::Update;
