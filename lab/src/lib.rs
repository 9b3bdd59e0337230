//! The laboratory: what one can train, how a step goes, what is asked of it and how it is answered.
//!
//! ```text
//! experiments → fit, peaks; experiments, model_file, huggingface → training → models, data        (no arrow runs back)
//! experiments → pipeline, data_parallel → training: a network split over devices, and one step divided among many
//! results: what a command found, as data; section: what a result consists of, for people
//! report: pages and exports, from results and from histories of events
//! lock: a run's memory, written down and compared
//! stacks → snapshot → replay: where memory came from and what it was for
//! rehearse: somebody's script, run on a card that is not there → stacks, snapshot, results
//! bench: workloads and a clock, on devices and allocators
//! ```
//!
//! Nothing here knows a terminal: results are data, and the program that shows them decides how.
//!
//! Whatever works on a device fails as the device does: out of memory, a kernel that it lacks, tensors whose shapes do not fit. An
//! `# Errors` section names what comes besides.

pub mod backends;
pub mod bench;
pub mod bytes;
pub mod cards;
pub mod claims;
pub mod data;
pub mod data_parallel;
pub mod error;
pub mod experiments;
pub mod explain;
pub mod figures;
mod files;
pub mod fit;
pub mod forensics;
pub mod huggingface;
pub mod lock;
pub mod model_file;
pub mod models;
mod named;
pub mod peaks;
pub mod pipeline;
pub mod predict;
pub mod record;
#[cfg(target_os = "linux")]
pub mod rehearse;
pub mod replay;
pub mod report;
pub mod results;
pub mod run;
pub mod section;
pub mod snapshot;
pub mod stacks;
pub mod training;

pub use error::{Error, Result};
