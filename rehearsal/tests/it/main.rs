//! The tests of the stand-in libraries, as one program.

mod common;
mod files;
mod names;
mod programs;
mod values;
