//! The embedded default backend: the host's memory, its threads and its SIMD units.
//!
//! Input: a number of threads. Output: [`Cpu`], with segments of the host's memory, and every kernel of the contract on them.
//!
//! - Execution is synchronous: `launch` returns when the kernel is done.
//! - Results are the same to the bit in every run on one machine. Work is cut into pieces whose borders depend only on sizes, never on the
//!   number of threads, and partial results are combined in a fixed order.
//! - A launch allocates nothing. Kernels that need memory between passes use a fixed scratch, see
//!   [`Backend::scratch_bytes`](memcore::backend::Backend::scratch_bytes).
//!
//! | file | what it holds |
//! |---|---|
//! | `memory.rs`, `os.rs` | segments and what the operating system says of memory |
//! | `view.rs` | how a kernel gets at its operands |
//! | `parallel.rs` | threads and scratch |
//! | `simd.rs`, `vector.rs`, `lanes.rs` | instruction sets, explicit vectors, reductions with them |
//! | `plain.rs` | vectors that are left to the compiler |
//! | `element.rs`, `halves.rs`, `math.rs` | element types, conversions of 16-bit floats, elementary functions |
//! | `panels/` | products of operands that were packed for the registers |
//! | `stream.rs`, `past_caches.rs` | the loop behind every elementwise kernel; results too large for the caches |
//! | `roof.rs` | what the processor can do at most |
//! | the rest | one file per kernel family, named as in `memcore::backend::kernel` |

mod attention;
mod backend;
mod conv;
mod element;
mod elementwise;
mod halves;
mod index;
mod lanes;
mod loss;
mod math;
mod matmul;
mod memory;
mod norm;
mod optim;
mod os;
mod panels;
mod parallel;
mod past_caches;
mod plain;
mod pool;
mod product;
mod quant;
mod random;
mod reduce;
mod refusal;
mod roof;
mod simd;
mod softmax;
mod stream;
mod vector;
mod view;

pub use backend::Cpu;
pub use past_caches::STREAMED_BYTES;

/// Returns the free and the total memory of the host; `None` if the system does not report them.
pub fn host_memory() -> Option<memcore::backend::MemoryInfo> {
    os::memory_info()
}
