//! The NVIDIA backend: kernels in CUDA C, compiled for the device at hand.
//!
//! It is given a device's number, and gives [`Cuda`]: segments of its memory, and the contract's kernels in them.
//!
//! - It builds without a CUDA toolkit and starts on every machine: driver and compiler are loaded at run time, and
//!   [`Cuda::open`] says which is missing and how to get it.
//! - One stream is the one queue. A launch synchronises nothing, allocates nothing and handles no string: functions
//!   are resolved when their family is first used.
//! - Kernels are compiled by NVRTC to machine code of the device's own architecture and kept on disk (see `cache.rs`).
//! - Results are the same to the bit in every run on one device: no kernel adds floats atomically.
//!
//! | file | what it holds |
//! |---|---|
//! | `driver.rs`, `queue.rs` | the driver behind safe calls, and what its errors mean; context and stream |
//! | `memory.rs`, `staging.rs` | segments and reservations; copies to the device |
//! | `libraries.rs` | where NVRTC and cuBLASLt lie, and their functions |
//! | `compile.rs`, `cache.rs`, `modules.rs` | compiler, disk cache, what they make of a family |
//! | `arguments.rs`, `kernel.rs`, `kernels.rs` | the structs that kernels take, in Rust and in C; a kernel; all kernels |
//! | `figures.rs` | memory outside of segments, and what NVML says |
//! | `blaslt.rs`, `blaslt/` | matrix products by cuBLASLt, where it is |
//! | `call.rs`, `launch.rs`, `walk.rs` | a launch; what a family has at hand for one; how elementwise kernels go over strided operands |
//! | `graphs.rs` | launches collected and launched as one, for those who ask for it |
//! | the rest | one file per kernel family, named as in `memcore::backend::kernel`; `kernels/*.cu` likewise |
//!
//! `tests/emulator` runs the very kernel files on the host, behind a stand-in driver.

mod arguments;
mod attention;
mod backend;
mod blaslt;
mod cache;
mod call;
mod compile;
mod conv;
mod driver;
mod elementwise;
mod figures;
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

/// A sum over everything that the compiler is given, for checks that are made once per change.
#[doc(hidden)]
pub fn kernel_fingerprint() -> String {
    kernels::fingerprint()
}

/// Compiles every kernel file for compute capability `major.minor`, without a GPU, and says what the assembler says.
///
/// # Errors
/// The compiler's log, or that it is not there.
#[doc(hidden)]
pub fn compile_reports(capability: (u32, u32)) -> memcore::Result<Vec<Report>> {
    kernels::reports(capability)
}

/// Compiles another kernel text for compute capability `major.minor`, without a GPU, to machine code of that many bytes.
///
/// # Errors
/// The compiler's log, or that it is not there.
#[doc(hidden)]
pub fn compile_text(name: &str, source: &str, capability: (u32, u32)) -> memcore::Result<usize> {
    use crate::compile::Compiler as _;
    let compiler = compile::Nvrtc::load(libraries::NEWEST)?;
    let code = compiler.compile(name, source, &[], capability);
    Ok(code.map_err(|log| memcore::Error::backend(driver::NAME, log))?.len())
}
