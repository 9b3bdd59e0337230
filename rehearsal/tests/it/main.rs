//! The tests of the stand-in libraries, as one program.

#[cfg(target_os = "linux")]
mod common;
mod cudnn;
mod files;
mod names;
mod programs;
mod values;
