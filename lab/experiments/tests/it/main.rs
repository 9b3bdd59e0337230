//! The tests of the experiments, as one program.

mod claims;
mod experiments;
mod private;
mod reported;
mod verdicts;
