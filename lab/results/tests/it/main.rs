//! The tests of results, as one program.

mod lines;
mod pages;
mod report;
mod several_devices;
mod stacks;
mod view;
