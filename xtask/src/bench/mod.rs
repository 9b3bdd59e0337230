//! Benchmarks as data: what criterion measured is collected into one dated file, and the READMEs' tables are made from such files.

pub mod collect;
pub mod results;
pub mod tables;
