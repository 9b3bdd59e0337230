//! The rules of the house, each held by a test, as one program.

mod architecture;
mod bench_tables;
mod circles;
mod container;
mod json;
mod layering;
mod programs;
mod prose;
mod published;
mod style;
