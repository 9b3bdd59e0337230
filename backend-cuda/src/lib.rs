//! The NVIDIA backend: kernels in CUDA C, compiled for the device at hand.
//!
//! Given the index of a device, it makes a [`Cuda`]: segments of the device's memory, and the kernels of the backend
//! contract in them.
//!
//! - It builds without a CUDA toolkit and starts on every machine: driver and compiler are loaded at run time, and
//!   [`Cuda::open`] tells which is missing and how to get it.
//! - One stream is the one queue. A launch does not synchronise, allocate or handle strings: functions are looked up
//!   when their family is first used.
//! - NVRTC compiles kernels to machine code of the device's own architecture; the code is kept on disk (see
//!   `cache.rs`).
//! - Results are the same to the bit in every run on one device: no kernel adds floats atomically, and what is chosen by
//!   its time is kept on disk too.
//!
//! | file | contents |
//! |---|---|
//! | `driver.rs`, `queue.rs` | the driver behind safe calls, and its errors explained; context and stream |
//! | `memory.rs`, `staging.rs` | segments and reservations; copies to the device |
//! | `libraries.rs` | search for NVRTC, cuBLASLt and cuDNN, and their functions |
//! | `compile.rs`, `cache.rs`, `modules.rs` | compiler, disk cache, loaded modules of the families |
//! | `arguments.rs`, `kernel.rs`, `kernels.rs` | the arguments of kernels, in Rust and in C; a kernel; all kernels |
//! | `figures.rs` | memory outside of segments, and NVML's figures |
//! | `timer.rs` | the time that the device takes for calls |
//! | `blaslt.rs`, `blaslt/` | matrix products by cuBLASLt, if it is present |
//! | `cudnn.rs`, `cudnn/`, `by_cudnn.rs` | convolutions and attention by cuDNN, if it is present |
//! | `call.rs`, `launch.rs`, `walk.rs` | a launch; a family's tools for it; how elementwise kernels go over strided operands |
//! | `fills.rs` | fills of single elements, several in one launch |
//! | `graphs.rs` | launches collected into CUDA graphs, if that was turned on |
//! | the rest | one file per kernel family, named as in `memcore::backend::kernel`; `kernels/*.cu` likewise |
//!
//! `tests/emulator` runs the same kernel files on the host, with a stand-in driver.

mod arguments;
mod attention;
mod backend;
mod blaslt;
mod by_cudnn;
mod cache;
mod call;
mod compile;
mod conv;
mod cudnn;
mod driver;
mod elementwise;
mod figures;
mod fills;
mod gemm;
mod graphs;
mod index;
mod kernel;
mod kernels;
mod launch;
mod libraries;
mod loss;
mod matmul;
mod memory;
mod modules;
mod norm;
mod optim;
mod pool;
mod quant;
mod queue;
mod random;
mod reduce;
mod rows;
mod softmax;
mod staging;
mod timer;
mod walk;

pub use backend::Cuda;
#[doc(hidden)]
pub use compile::{Compiler, Report};
pub use figures::{MemorySteps, NvmlFigures, nvml_devices};

/// The names of all functions in the kernel files, for the tests.
#[doc(hidden)]
pub fn kernel_names() -> Vec<String> {
    kernels::names()
}

/// The text of the generated header, `arguments.cuh`, for the tests.
#[doc(hidden)]
pub fn kernel_arguments() -> &'static str {
    kernels::arguments()
}

/// A checksum of everything that the compiler is given, for checks that are made once per change.
#[doc(hidden)]
pub fn kernel_fingerprint() -> String {
    kernels::fingerprint()
}

/// Compiles every kernel file for compute capability `major.minor`, without a GPU, and returns the assembler's figures.
///
/// # Errors
/// The compiler's log, or that the compiler is missing.
#[doc(hidden)]
pub fn compile_reports(capability: (u32, u32)) -> memcore::Result<Vec<Report>> {
    kernels::reports(capability)
}

/// Compiles another kernel text for compute capability `major.minor`, without a GPU; returns the number of bytes of
/// machine code.
///
/// # Errors
/// The compiler's log, or that the compiler is missing.
#[doc(hidden)]
pub fn compile_text(name: &str, source: &str, capability: (u32, u32)) -> memcore::Result<usize> {
    use crate::compile::Compiler as _;
    let compiler = compile::Nvrtc::load(libraries::NEWEST)?;
    let code = compiler.compile(name, source, &[], capability);
    Ok(code.map_err(|log| memcore::Error::backend(driver::NAME, log))?.len())
}
