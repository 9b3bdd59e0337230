//! Analyses of runs.
//!
//! This crate takes figures and histories of runs, and provides: [`fit`], the largest size that fits, and the law of the peak; [`peaks`], the highest
//! moments; [`forensics`], whether memory grows, and who holds it; [`lock`], the memory of a run, written down and compared; [`predict`], closed
//! forms that experiments are compared with; [`lengths`], batches of examples of different lengths; [`combine`], the smallest combinations of changes that reach a goal; [`step_time`], how long a step takes on a
//! card, estimated; [`mod@bench`], workloads and a
//! clock.

pub mod bench;
pub mod combine;
pub mod fit;
pub mod forensics;
pub mod lengths;
pub mod lock;
pub mod peaks;
pub mod predict;
pub mod sending;
mod side_by_side;
pub mod step_time;

pub use side_by_side::side_by_side;
