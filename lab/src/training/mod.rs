//! One training loop for everything that is trained: [`Trainer`] calls the phases of a [`TrainStep`] in the order of their [`Schedule`].

mod checkpoint;
mod evaluate;
mod loss;
mod model_step;
mod optimizer;
mod rows;
mod run;
mod schedule;
mod settings;
mod source;
mod train_step;
mod trainer;
mod update;

pub(crate) use checkpoint::data_name;
pub use checkpoint::{Begin, Continuation, HostTensor, PROFILE_KEY, Parts, StateFile, TrainingState};
pub(crate) use evaluate::evaluate_with;
pub use evaluate::{Accuracy, evaluate};
pub use loss::loss;
pub(crate) use loss::loss_per;
pub use model_step::ModelStep;
pub use optimizer::{OptimizerKind, OptimizerSettings};
pub use rows::Rows;
pub use run::{Failed, MAX_VALUES, Partial, Progress, RunResult, train, train_from};
pub(crate) use run::{Steps, Taken, run, take_steps};
pub use schedule::{Phase, RowAfter, Schedule};
pub use settings::{Precision, RunSettings};
pub use source::{Batch, Source};
pub use train_step::TrainStep;
pub(crate) use train_step::{bound, value_of};
pub use trainer::Trainer;
pub use update::Update;
