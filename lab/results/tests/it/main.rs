//! The tests of results, as one program.

mod lines;
mod report;
mod several_devices;
mod stacks;
