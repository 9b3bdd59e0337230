//! The tests of results, as one program.

mod report;
mod stacks;
