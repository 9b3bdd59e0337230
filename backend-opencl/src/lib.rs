//! The backend for OpenCL: Intel's, AMD's, ARM's and NVIDIA's GPUs, and processors through PoCL.
//!
//! Its kernels are the [portable](portable_kernels) ones, correct and slow. The crate itself implements the nine
//! methods of a backend: buffers as segments, one in-order queue, and programs that are compiled when one of their
//! kernels is first launched.
//!
//! The OpenCL library is loaded when a device is asked for. Without it the program still starts, and [`OpenCl::count`]
//! reports what is missing.

mod backend;
mod device;
mod programs;

pub use backend::OpenCl;
pub use device::{Found, devices};

/// The backend's name.
const NAME: &str = "opencl";

/// Makes an error of this backend from the failed action and its cause.
fn failed(what: &str, error: impl std::fmt::Display) -> memcore::Error {
    memcore::Error::backend(NAME, format!("{what}: {error}"))
}
