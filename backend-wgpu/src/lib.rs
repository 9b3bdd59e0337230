//! Any graphics card, through wgpu: Vulkan, Metal and DX12; kernels in WGSL.
//!
//! It is given an adapter's number, and gives [`Wgpu`]: buffers as segments, and the contract's kernels in them.
//!
//! - **Segments are buffers**, and core's regions are bound directly. wgpu refuses a buffer that is bound read-only and read-write in one
//!   dispatch, whatever the ranges, so every operand is bound read-write. Bindings begin at multiples of 256 bytes; an operand that begins
//!   elsewhere is bound from the multiple before it, and the elements between are a parameter of the kernel.
//! - **One queue, submitted late.** Dispatches collect in one compute pass of one open encoder, until something is read, a segment is given
//!   back, or 512 of them are waiting. Uploads are copies in the same encoder, so they are ordered like everything else. A
//!   training step is a handful of submissions.
//! - **A pointwise launch waits for the next call**: a function of floats in the very place of its result becomes a part of its kernel, with the
//!   bits that two kernels would give. `relu_(a + b)` then moves 12 bytes an element instead of 20. Whatever else comes records it first.
//! - **Sizes, strides and scalars are parameters**, in a ring of uniform slots, one per dispatch: no source depends on them, so pipelines are
//!   made once per kernel, element types and form. Bind groups are kept by the ranges they bind, until a segment of theirs goes.
//! - **Types need no feature of the adapter.** f16, bf16 and bytes share 32-bit words: a thread that writes a part of a word changes its
//!   own bits alone, atomically, and where four elements begin at a multiple of four one thread owns their words. Conversions are done in integer
//!   arithmetic, so that they round alike everywhere. i64 is two words. f64 does not exist.
//! - **Nothing is allocated after construction** but segments: staging memory, the parameter ring and a scratch for partial results have
//!   fixed sizes, see [`Backend::scratch_bytes`](memcore::backend::Backend::scratch_bytes).
//! - **Four elements at a time** wherever an operand lies so that they can be read at once: pointwise kernels, rows, products, optimizers. Software
//!   adapters move them as two words of 64 bits, see `element::quads`, and take eight at a time in pointwise kernels.
//! - **Products are tried out**: a card's first product of a kind chooses among several sizes of tile, which all give the same bits.
//! - **Results repeat to the bit**: no atomic sums; what is cut into parts is put together in a fixed order.
//! - **Errors are values**: what the driver reports, a lost device included, comes back from the next call with the device's name.
//!
//! Some software drivers stop a thread's loops after 65 535 rounds, silently; kernels cut long loops into parts, for speed as well.
//!
//! | file | what it holds |
//! |---|---|
//! | `adapter.rs`, `gpu.rs`, `driver.rs` | adapters, an opened one and its errors, what the driver says of memory |
//! | `segments.rs`, `queue.rs`, `transfer.rs` | memory; commands, staging, submissions; bytes that fill no word |
//! | `choice.rs` | products that are alike, and the tile that was chosen for them |
//! | `key.rs`, `pipelines.rs`, `job.rs` | how kernels are named; pipelines and bind groups, kept; one launch being put together |
//! | `fusion.rs` | the launch that waits, and what may become a part of it |
//! | `element.rs`, `common.wgsl` | how WGSL gets at elements of each type, generated |
//! | `pointwise.rs`, `rows.rs`, `gemm/` | the three kinds of kernels that most families are made of |
//! | the rest | one file per kernel family, named as in `memcore::backend::kernel`, its WGSL in a directory beside it |

mod adapter;
mod attention;
mod backend;
mod choice;
mod conv;
mod driver;
mod element;
mod elementwise;
mod fusion;
mod gemm;
mod gpu;
mod index;
mod job;
mod key;
mod loss;
#[cfg(test)]
mod lost;
mod matmul;
mod norm;
mod optim;
mod pipelines;
mod pointwise;
mod pool;
mod quant;
mod queue;
mod random;
mod reduce;
mod rows;
mod segments;
mod softmax;
#[cfg(test)]
mod tiles;
mod transfer;

pub use adapter::{AdapterInfo, NO_ADAPTER, adapters};
pub use backend::{Statistics, Wgpu};

/// The backend's name.
pub(crate) const NAME: &str = "wgpu";
