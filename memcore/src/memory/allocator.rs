//! The interface of allocation policies: a request goes in, a block comes out.

use super::snapshot::Snapshot;
use super::stats::Stats;
use super::stream::Stream;
use crate::backend::{Region, SegmentId};
use crate::error::Result;

/// A live block of one allocator: an index, which is reused after the block is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// The block that an allocator gave for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Id by which the block is freed.
    pub id: BlockId,
    /// The block's memory for kernels: `requested_bytes` long.
    pub region: Region,
    /// Virtual address: the base of the segment plus the offset. Bases grow from segment to segment.
    pub address: u64,
    /// Bytes that the client asked for.
    pub requested_bytes: u64,
    /// Bytes that the block takes from the pool: the request rounded up, plus any rest too small to split off.
    pub bytes: u64,
}

/// A call to the driver and its outcome. Sizes in bytes; addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// A segment was taken.
    SegmentAlloc {
        /// Base address.
        address: u64,
        /// Size.
        bytes: u64,
        /// The stream whose blocks it will hold.
        stream: Stream,
        /// The backend's id.
        segment: SegmentId,
    },
    /// A segment was given back.
    SegmentFree {
        /// Base address.
        address: u64,
        /// Size.
        bytes: u64,
        /// The stream whose blocks it held.
        stream: Stream,
        /// The backend's id, no longer valid.
        segment: SegmentId,
    },
    /// Addresses were reserved without memory.
    Reserve {
        /// First address.
        address: u64,
        /// Number of addresses.
        bytes: u64,
        /// The stream whose blocks they will hold.
        stream: Stream,
        /// The backend's id of the range.
        segment: SegmentId,
    },
    /// A reservation ended.
    Release {
        /// First address.
        address: u64,
        /// Number of addresses.
        bytes: u64,
        /// The stream whose blocks it held.
        stream: Stream,
        /// The backend's id of the range, no longer valid.
        segment: SegmentId,
    },
    /// Memory was mapped to a part of a reservation.
    Map {
        /// First address of the part.
        address: u64,
        /// Size of the part: a multiple of `page_bytes`.
        bytes: u64,
        /// Size of a page.
        page_bytes: u64,
        /// The stream whose blocks it will hold.
        stream: Stream,
        /// The backend's id of the range.
        segment: SegmentId,
    },
    /// The memory of a part of a reservation was unmapped.
    Unmap {
        /// First address of the part.
        address: u64,
        /// Size of the part: a multiple of `page_bytes`.
        bytes: u64,
        /// Size of a page.
        page_bytes: u64,
        /// The stream whose blocks it held.
        stream: Stream,
        /// The backend's id of the range.
        segment: SegmentId,
    },
    /// The driver had no room for a segment.
    Refused {
        /// Size of the segment.
        bytes: u64,
    },
    /// The driver had no room for a page of a reservation.
    MapRefused {
        /// Size of the page.
        bytes: u64,
    },
    /// Expandable segments were asked for on a device without virtual memory, so ordinary segments are used. Sent once.
    ExpandableUnsupported,
}

/// The circumstances of the last failed allocation, for [`OutOfMemory`](super::OutOfMemory).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationFailure {
    /// Bytes that the client asked for.
    pub requested_bytes: u64,
    /// Size of the block that the allocator looked for.
    pub block_bytes: u64,
    /// Size of the segment that the allocator asked the driver for.
    pub segment_bytes: u64,
    /// The most that this allocator may take from the driver; `None` without a limit.
    pub allowed_bytes: Option<u64>,
    /// Bytes given back to the driver during the attempt.
    pub released_bytes: u64,
    /// Free blocks of private pools, which serve no other user.
    pub private_cached_bytes: u64,
    /// The largest request, in bytes, that would be served now.
    pub largest_fit_bytes: u64,
    /// True if the allocator refused without asking the driver, because the configured fraction of the device would be
    /// exceeded.
    pub preemptive: bool,
}

/// A policy for turning requests into blocks of segments.
///
/// *Implementations*: [`Caching`](super::Caching), [`Direct`](super::Direct). Each owns a handle to its device's memory
/// and is used by one thread at a time. Work runs in the order of the calls (one in-order queue), so a freed block may
/// serve the very next request. In a program with several streams, [`record_stream`](Self::record_stream) tells which
/// streams a free must wait for.
///
/// Every call to the driver is reported to the `driver` callback, in order, after it happened.
///
/// *To add one*: write a file next to `direct.rs`, keep [`Stats`] by the table in `stats.rs`, and add it to the list in
/// the allocator suite of the tests, which checks the contract below on random programs.
pub trait Allocator: Send {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Allocates a block of at least `bytes` (> 0) for `stream`. Its contents are garbage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`](crate::Error::DeviceFull) or [`Error::TooLarge`](crate::Error::TooLarge) if the driver
    /// still refused after everything that could be given back was given back. [`last_failure`](Self::last_failure)
    /// then has the details, and the allocator remains usable. Any other error is the backend's own.
    fn allocate(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Block>;

    /// Frees a block. An id that is not live is ignored (it is a bug of the caller: debug builds assert).
    fn free(&mut self, id: BlockId, driver: &mut dyn FnMut(DriverEvent));

    /// Notes that work on `stream` uses the block: its free then waits until that work is done. No effect in policies
    /// that do not share blocks between streams.
    fn record_stream(&mut self, id: BlockId, stream: Stream) {
        let _ = (id, stream);
    }

    /// Holds back work from here on: the work that a free waits for stays unfinished until
    /// [`complete_events`](Self::complete_events). Earlier work is complete. Without this call, work completes at once.
    /// For replays.
    fn hold_events(&mut self) {}

    /// Completes all work that frees wait for so far. The blocks become free when the allocator next looks: at the next
    /// allocation. For replays.
    fn complete_events(&mut self) {}

    /// Serves requests from a private pool from here on, like a CUDA graph's. The pool is created at its first use and
    /// kept. Policies without private pools ignore this. For replays.
    fn enter_pool(&mut self, pool: u16) {
        let _ = pool;
    }

    /// Ends what [`enter_pool`](Self::enter_pool) began: requests no longer use that private pool.
    fn leave_pool(&mut self, pool: u16) {
        let _ = pool;
    }

    /// Gives back to the driver everything that can be given back; returns its bytes.
    fn empty_cache(&mut self, driver: &mut dyn FnMut(DriverEvent)) -> u64;

    /// Limits what may be taken from the driver to this fraction of the device's memory; 1 lifts the limit.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a fraction outside 0..=1, a policy without such a limit, and a
    /// driver that does not report how much memory the device has.
    fn set_memory_fraction(&mut self, fraction: f64) -> Result<()> {
        if fraction == 1.0 {
            return Ok(());
        }
        Err(crate::Error::invalid("memory fraction", format!("policy {} has no limit", self.name())))
    }

    /// The counters.
    fn stats(&self) -> &Stats;

    /// The counters, to be reset.
    fn stats_mut(&mut self) -> &mut Stats;

    /// Resets every peak to its current value.
    fn reset_peak_stats(&mut self) {
        self.stats_mut().reset_peak();
    }

    /// Resets every accumulated count to 0; current values and peaks stay.
    fn reset_accumulated_stats(&mut self) {
        self.stats_mut().reset_accumulated();
    }

    /// All segments, blocks and their states, as data, in order of address.
    fn snapshot(&self) -> Snapshot;

    /// The [`layout`](Snapshot::layout) of the snapshot.
    fn layout(&self) -> u64 {
        self.snapshot().layout()
    }

    /// The circumstances of the last [`allocate`](Self::allocate) that ran out of memory.
    fn last_failure(&self) -> Option<&AllocationFailure>;
}

/// The limit that `set_per_process_memory_fraction` sets on a device with `total_bytes`; `None`: no limit.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a fraction outside 0..=1, and if the driver does not report how much
/// memory the device has.
pub(super) fn allowed_bytes(fraction: f64, total_bytes: Option<u64>) -> Result<Option<u64>> {
    let invalid = |text: String| crate::Error::invalid("memory fraction", text);
    if !(0.0..=1.0).contains(&fraction) {
        return Err(invalid(format!("invalid fraction:{fraction}. Please set within [0, 1].")));
    }
    if fraction == 1.0 {
        return Ok(None);
    }
    let total = total_bytes.ok_or_else(|| invalid("the driver does not say how much memory the device has".into()))?;
    Ok(Some((fraction * total as f64) as u64))
}
