//! Rehearsals: a user's own script runs under the real PyTorch, on a card that is not there (`docs/rehearse.md`).
//!
//! ```text
//! request ─► library, folder ─► environment ─► run: start, follow, end ─► answers, log ─► collect ─► results::Rehearsal
//!                  again: changes that make a script fit; points: several values; tries: proposals
//!                  rehearsal/python: what each Python of the run does; contract: what it is told, and what it writes for answers
//!                  protect: what keeps the user's files; open: caches; outputs: what was written; changed: whether it held
//! ```
//!
//! Files that the script's processes write are read like any file from outside: within limits, and never executed.

mod again;
mod answers;
mod arguments;
mod batch;
mod categories;
mod changed;
mod collect;
mod commands;
mod contract;
#[cfg(test)]
mod damaged;
mod enough;
mod environment;
mod folder;
mod growth;
mod held_folder;
mod left_folders;
mod library;
mod lines;
mod log;
mod no_torch;
mod open;
mod outputs;
mod peak;
mod phases;
mod places;
mod plain;
mod plans;
mod points;
mod processes;
mod progress;
mod promise;
mod protect;
mod rehearsal;
mod request;
mod run;
#[cfg(test)]
mod same_shares;
mod scan;
mod settings;
mod tries;
mod verdict;
mod world;

pub use again::try_changes;
pub use arguments::reads_arguments;
pub use collect::Rehearsed;
pub use no_torch::NoTorch;
pub use plans::ask_cudnn;
pub use points::{Points, rehearse_points};
pub use progress::{Progress, Stage, Watch};
pub use rehearsal::rehearse;
pub use request::{Request, RequestedCard, Stop, Use};
pub use scan::at_point;
pub use world::{World, cards_of_a_machine};
