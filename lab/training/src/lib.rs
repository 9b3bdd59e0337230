//! One training loop for everything that is trained: [`Trainer`] calls the phases of a [`TrainStep`] in the order of their [`Schedule`].
//!
//! This crate takes an architecture, a device, [`RunSettings`] and a [`Source`] of batches. It returns rows of the memory held after each phase,
//! losses, and a file of the training's state. [`pipeline`] trains a network that is split over devices, and [`data_parallel`] one that several ranks
//! have a copy or a share of; [`data`] reads data sets, [`record`] defines the columns of a row.

mod average;
mod between;
mod checkpoint;
pub mod data;
pub mod data_parallel;
mod evaluate;
mod groups;
mod in_backward;
mod loss;
mod model_network;
mod optimizer;
pub mod pipeline;
mod quantized;
pub mod record;
mod rows;
mod run;
mod schedule;
mod script_step;
mod settings;
mod source;
mod train_step;
mod trainer;
mod turns;
mod update;

pub use average::{Averaged, Ema};
pub use between::{CheckpointSave, Evaluation, Hold, SavedOn};
pub use checkpoint::data_name;
pub use checkpoint::{Begin, Continuation, HostTensor, PROFILE_KEY, Parts, StateFile, TrainingState};
pub use evaluate::evaluate_with;
pub use evaluate::{Accuracy, evaluate};
pub use groups::Groups;
pub use loss::loss;
pub use loss::loss_per;
pub use loss::{next_labels, next_token, shifted_labels};
pub use model_network::{ModelBatch, ModelNetwork, ModelStep};
pub use optimizer::{OptimizerKind, OptimizerSettings};
pub use rows::Rows;
pub use run::{Failed, MAX_VALUES, Partial, Progress, RunResult, train, train_from};
pub use run::{Steps, Taken, run, take_steps};
pub use schedule::{Phase, RowAfter, Schedule};
pub use script_step::{BeforeForward, ScriptNetwork, ScriptStep};
pub use settings::{Precision, RunSettings};
pub use source::{Batch, Source};
pub use train_step::TrainStep;
pub use train_step::{bound, value_of};
pub use trainer::Trainer;
pub use turns::Turns;
pub use update::Update;
