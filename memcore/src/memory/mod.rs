//! Memory of a device: allocation, and the account of it.
//!
//! ```text
//!   Storage (one layer up)      owns a block for as long as a value lives
//!      │
//!   Ledger                      meaning: category, scope, op, phase; a fold over events
//!      │
//!   dyn Allocator               bytes: segments, blocks, splits, statistics
//!      │
//!   dyn DeviceMemory            the driver
//! ```
//!
//! An [`Allocator`] turns requests into [`Block`]s of the segments that it takes from the driver. It knows bytes, but
//! not their meaning. The [`Ledger`] knows the meaning, but no segments: it folds [`Event`]s into a [`Usage`], so that
//! a report can be made again from a recording, without a device. Neither calls the other; the device layer calls both
//! under its one lock.
//!
//! Policies: [`Caching`] is exactly PyTorch's; [`Direct`] asks the driver every time; [`Bfc`], [`Buddy`] and [`Tlsf`]
//! are policies of other systems, each made of a set of rules ([`Fit`]); [`Planned`] knows the future.
//!
//! The terms are PyTorch's. A *segment* is the memory of one driver call, a *block* is a part of it. *Allocated* counts
//! blocks that a client holds, *active* also those whose free waits for another stream, *reserved* whole segments, and
//! *requested* the bytes that clients asked for before rounding.

mod address;
mod allocator;
mod arena;
mod bfc;
mod buddy;
pub mod caching;
mod direct;
mod event;
mod ledger;
mod oom;
mod packed;
pub mod planned;
mod rings;
mod slab;
mod snapshot;
mod stats;
mod stream;
mod tlsf;
mod usage;

pub use allocator::{AllocationFailure, Allocator, Block, BlockId, DriverEvent};
pub use arena::{Arena, Fit, FreeBlock, Room};
pub use bfc::{BestFit, Bfc};
pub use buddy::{Buddies, Buddy};
pub use caching::{AllocatorConfig, BLOCK_BYTES, Caching, TorchVersion, memory_summary};
pub use direct::Direct;
pub use event::{AllocId, Event, Origin, PhaseId, ScopeId};
pub use ledger::Ledger;
pub use oom::TorchSize;
pub use planned::Planned;
pub use snapshot::{BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};
pub use stats::{Stat, StatArray, Stats};
pub use stream::Stream;
pub use tlsf::{Tlsf, TwoLevels};
pub use usage::{Live, PeakComposition, Usage};

pub use crate::account::{Category, CategoryBytes, Needs, OutOfMemory, Rings, Verdict};
