//! Any graphics card, through wgpu: Vulkan, Metal and DX12; kernels in WGSL.
//!
//! Given the index of an adapter, it makes a [`Wgpu`]: segments are buffers, and the kernels of the backend contract
//! run in them.
//!
//! - **Segments are buffers**, and core's regions are bound directly. wgpu refuses a buffer that is bound read-only and
//!   read-write in one dispatch, whatever the ranges, so every operand is bound read-write. Bindings begin at multiples
//!   of 256 bytes. An operand that begins elsewhere is bound from the multiple before it, and the number of elements
//!   between is a parameter of the kernel.
//! - **One queue, submitted late.** Dispatches collect in one compute pass of one open encoder, until something is
//!   read, a segment is freed, or 512 of them are waiting. Uploads are copies in the same encoder, so they are ordered
//!   like everything else. A training step needs a handful of submissions.
//! - **A pointwise launch waits for the next call.** A function of floats, in place on its result, becomes a part of
//!   its kernel, with the same bits as two kernels. `relu_(a + b)` then moves 12 bytes per element instead of 20. Any
//!   other call records the waiting launch first.
//! - **Sizes, strides and scalars are parameters**, in a ring of uniform slots, one per dispatch. No source depends on
//!   them, so pipelines are made once per kernel, element types and form. Bind groups are kept by the ranges that they
//!   bind, until one of their segments is freed.
//! - **Types need no feature of the adapter.** f16, bf16 and bytes share 32-bit words. A thread that writes a part of a
//!   word changes only its own bits, atomically; if four elements begin at a multiple of four, one thread owns their
//!   words. Conversions of f16 are the device's own where a trial finds every one of them right, with `SHADER_F16` if
//!   that rounds and packing does not; else integer arithmetic, as always for bf16. So they round alike on every
//!   adapter. Sums are in f32. i64 is two words. f64 is not supported.
//! - **After construction only segments are allocated.** Staging memory, the parameter ring and a scratch for partial
//!   results have fixed sizes, see [`Backend::scratch_bytes`](memcore::backend::Backend::scratch_bytes).
//! - **Four elements at a time** wherever an operand's layout lets them be read at once: pointwise kernels, rows,
//!   products, optimizers. Software adapters move them as two words of 64 bits, see `element::quads`, and take eight
//!   elements at a time in pointwise kernels.
//! - **Products are tuned by trial**: a card's first product of a kind chooses among several sizes of tile, which all
//!   give the same bits.
//! - **Results repeat to the bit**: there are no atomic sums, and parts are added in a fixed order.
//! - **Errors are values**: an error that the driver reports, a lost device included, is returned by the next call,
//!   with the device's name.
//!
//! Some software drivers silently stop a thread's loops after 65 535 rounds; kernels cut long loops into parts, which
//! is also faster.
//!
//! | file | contents |
//! |---|---|
//! | `adapter.rs`, `gpu.rs`, `driver.rs` | adapters, an opened one and its errors, the driver's figures about memory |
//! | `segments.rs`, `queue.rs`, `transfer.rs` | memory; commands, staging, submissions; bytes that do not fill a word |
//! | `choice.rs` | kinds of products, and the tile that was chosen for each |
//! | `halves.rs` | the trial of a device's conversions of f16 |
//! | `key.rs`, `pipelines.rs`, `job.rs` | keys of kernels; cached pipelines and bind groups; a launch under construction |
//! | `fusion.rs` | the pending launch, and the calls that may be fused into it |
//! | `element.rs`, `common.wgsl` | generated access to elements of each type from WGSL |
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
mod halves;
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
