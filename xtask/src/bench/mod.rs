//! Benchmarks as data: criterion's measurements are collected into one dated file, and the READMEs' tables are made
//! from such files.

pub mod collect;
pub mod results;
pub mod tables;
