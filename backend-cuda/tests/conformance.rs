//! The conformance suites on the CUDA backend: on the GPU if one is found or `REQUIRE_DEVICE=cuda` demands one, else on
//! the emulator, which runs the same kernel files on the host.

use std::process::ExitCode;

use backend_cuda::Cuda;
use conformance::Options;

mod emulator;

fn main() -> ExitCode {
    if emulator::is_here() {
        // The emulated device has a memory size of its own: it may be filled.
        let options = Options { may_fill: true };
        return conformance::main_with("cuda on the emulator", options, emulator::open);
    }
    let found = std::env::var_os("CUDA_EMULATOR").is_none() && Cuda::open(0).is_ok();
    if conformance::is_required("cuda") || found {
        return conformance::main_with("cuda", Options { may_fill: true }, || Cuda::open(0));
    }
    if !std::env::args().any(|argument| argument == "--list") {
        eprintln!("no NVIDIA GPU here: the kernels run on the emulator, which shows nothing of a real GPU");
    }
    emulator::run_again().unwrap_or_else(|problem| {
        eprintln!("the emulator does not start: {problem}");
        ExitCode::FAILURE
    })
}
