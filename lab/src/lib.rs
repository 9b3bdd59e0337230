//! The laboratory, whole: a run from what was asked for to its result. Each floor below is a crate of its own.
//!
//! It is given a [`run::RunSpec`] or somebody's script, with the devices of a program, and gives results.
//!
//! ```text
//! lab          run (a RunSpec, resolved to a Session), rehearse (somebody's script, run on a card that is not there)
//! results      what commands found, as data and as sections; report: pages and exports
//! experiments  questions with claims and verdicts; claims
//! analysis     fit, peaks, forensics, lock, predict, bench
//! imports      huggingface, exported, model_file         (no arrow runs back)
//! training     one loop; data, record; pipeline, data_parallel
//! models       networks, one per file
//! traces       replay, snapshot, stacks, explain
//! base         error, section, figures, cards, backends
//! ```
//!
//! Nothing here knows a terminal: results are data, and the program that shows them decides how.
//!
//! Whatever works on a device fails as the device does: out of memory, a kernel that it lacks, tensors whose shapes do not fit. An
//! `# Errors` section names what comes besides; a function without one fails as what it calls does.

#[cfg(target_os = "linux")]
pub mod rehearse;
pub mod run;

pub use lab_analysis::{bench, fit, forensics, lock, peaks, predict};
pub use lab_base::{Error, Result, backends, bytes, cards, error, figures, section, similar};
pub use lab_experiments::{self as experiments, claims};
pub use lab_imports::{exported, hf_args, huggingface, model_file};
pub use lab_models as models;
pub use lab_results::{self as results, report, view};
pub use lab_traces::{explain, replay, snapshot, stacks};
pub use lab_training::{self as training, data, data_parallel, pipeline, record};
