//! The whole laboratory: from the request for a run to its result. Each layer below is a crate of its own.
//!
//! It takes a [`run::RunSpec`] or a user's script, with the devices of a program, and returns results.
//!
//! ```text
//! lab          run (a RunSpec, resolved to a Session), rehearse (a user's script, run on a card that is not there)
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
//! Nothing here knows a terminal: results are data, and the program that shows them formats them.
//!
//! Every function that uses a device can fail with the device's errors: out of memory, a missing kernel, shapes that do not fit. An
//! `# Errors` section lists further errors; a function without one returns the errors of the functions that it calls.

pub mod any_model;
#[cfg(target_os = "linux")]
pub mod rehearse;
pub mod run;
pub mod watch;

pub use lab_analysis::{bench, fit, forensics, lengths, lock, peaks, predict, sending, step_time};
pub use lab_base::{
    Error, Result, backends, bytes, cards, changes, error, figures, files, hidden, host_memory, input, named, python,
    section, similar, speeds,
};
pub use lab_experiments::{self as experiments, claims};
pub use lab_imports::{exported, hf_args, huggingface, model_file, networks, published, recipes};
pub use lab_models as models;
pub use lab_results::{self as results, report, view};
pub use lab_traces::{explain, replay, snapshot, stacks, unpacked};
pub use lab_training::{self as training, data, data_parallel, pipeline, record};
