//! The conformance suites on an OpenCL device: the first, or the one whose index is in `VRAMLAB_OPENCL_DEVICE`.

use std::process::ExitCode;

use backend_opencl::OpenCl;

fn main() -> ExitCode {
    conformance::main("opencl", || {
        let index = match std::env::var("VRAMLAB_OPENCL_DEVICE") {
            Ok(text) => text.parse().map_err(|_| format!("VRAMLAB_OPENCL_DEVICE: {text} is not a number"))?,
            Err(_) => 0,
        };
        OpenCl::open(index).map_err(|error| error.to_string())
    })
}
