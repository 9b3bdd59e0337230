//! Benchmarks: the workloads that `vramlab bench`, the benchmarks and the comparison with other programs share, so that each is written once and its
//! bytes and operations are counted in one place.
//!
//! ```text
//! kernels: every family, at sizes that grow ─────────┐
//! training: networks as other programs train them ───┼─► Work: runs on a device; what it must move and compute ─► Timing
//! allocators: programs through every policy ─► Timing│   Roofline: the most that the device moves and computes
//! short: a minute's selection of all of it ◄─────────┘
//! ```
//!
//! No figure here decides whether a result is correct.

pub mod allocators;
mod clock;
pub mod kernels;
mod roofline;
mod short;
pub mod training;
mod values;
mod work;

pub use clock::{Limits, Timing, time};
pub use roofline::Roofline;
pub use short::{Allocator, Measured, OfDevice, Short, Skipped, Trained};
pub use values::{INPUTS, TARGETS, labels, uniform};
pub use work::{Demand, Work};
