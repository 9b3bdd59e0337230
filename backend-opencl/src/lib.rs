//! The backend for OpenCL: Intel's, AMD's, ARM's and NVIDIA's GPUs, and processors through PoCL.
//!
//! Its kernels are the [portable](portable_kernels) ones, correct and slow. What is its own are the nine methods of a backend: buffers as segments, one
//! queue in order, and a program that is compiled when a kernel of it is launched first.
//!
//! The library of OpenCL is loaded when a device is asked for: without one the program starts, and [`OpenCl::count`] says what is missing.

mod backend;
mod device;
mod programs;

pub use backend::OpenCl;
pub use device::{Found, devices};

/// The backend's name.
const NAME: &str = "opencl";

/// An error of this backend, with what was tried.
fn failed(what: &str, error: impl std::fmt::Display) -> memcore::Error {
    memcore::Error::backend(NAME, format!("{what}: {error}"))
}
