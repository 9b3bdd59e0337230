//! The policy interface: requests in, blocks out.

use super::snapshot::Snapshot;
use super::stats::Stats;
use super::stream::Stream;
use crate::backend::{Region, SegmentId};
use crate::error::Result;

/// A live block of one allocator: an index that is reused after the block is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// What an allocator gave for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// To free it by.
    pub id: BlockId,
    /// Where a kernel finds it: `requested_bytes` long.
    pub region: Region,
    /// Its virtual address: the segment's base, which only grows from segment to segment, plus the offset.
    pub address: u64,
    /// What the client asked for.
    pub requested_bytes: u64,
    /// What it takes from the pool: the request rounded up, and any rest too small to split off.
    pub bytes: u64,
}

/// What an allocator asked of the driver, and what came of it. Sizes and addresses in bytes; addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// A segment was taken.
    SegmentAlloc {
        /// Its base.
        address: u64,
        /// Its size.
        bytes: u64,
        /// Whose blocks it will hold.
        stream: Stream,
        /// What the backend calls it.
        segment: SegmentId,
    },
    /// A segment was given back.
    SegmentFree {
        /// Its base.
        address: u64,
        /// Its size.
        bytes: u64,
        /// Whose blocks it held.
        stream: Stream,
        /// What the backend called it.
        segment: SegmentId,
    },
    /// Addresses were reserved, without memory behind them.
    Reserve {
        /// First address.
        address: u64,
        /// How many.
        bytes: u64,
        /// Whose blocks they will hold.
        stream: Stream,
        /// What the backend calls the range.
        segment: SegmentId,
    },
    /// A reservation was given up.
    Release {
        /// First address.
        address: u64,
        /// How many.
        bytes: u64,
        /// Whose blocks it held.
        stream: Stream,
        /// What the backend called the range.
        segment: SegmentId,
    },
    /// Memory was put behind a part of a reservation.
    Map {
        /// First address of the part.
        address: u64,
        /// Size of the part: a multiple of `page_bytes`.
        bytes: u64,
        /// Size of a page.
        page_bytes: u64,
        /// Whose blocks it will hold.
        stream: Stream,
        /// What the backend calls the range.
        segment: SegmentId,
    },
    /// The memory behind a part of a reservation was given back.
    Unmap {
        /// First address of the part.
        address: u64,
        /// Size of the part: a multiple of `page_bytes`.
        bytes: u64,
        /// Size of a page.
        page_bytes: u64,
        /// Whose blocks it held.
        stream: Stream,
        /// What the backend calls the range.
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
    /// Expandable segments were asked for on a device that has no virtual memory; ordinary segments are used. Once.
    ExpandableUnsupported,
}

/// Why the last allocation failed, for [`OutOfMemory`](super::OutOfMemory).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationFailure {
    /// What the client asked for.
    pub requested_bytes: u64,
    /// The size of the block that was looked for.
    pub block_bytes: u64,
    /// The size of the segment that the driver was asked for.
    pub segment_bytes: u64,
    /// The most that this allocator may take from the driver, where a limit was set on it.
    pub allowed_bytes: Option<u64>,
    /// What was given back to the driver on the way.
    pub released_bytes: u64,
    /// Free blocks of private pools, which serve nobody else.
    pub private_cached_bytes: u64,
    /// The largest request, in bytes, that would be served now.
    pub largest_fit_bytes: u64,
    /// Refused ahead of the driver, because it would exceed the configured fraction of the device.
    pub preemptive: bool,
}

/// A policy for turning requests into blocks of segments.
///
/// *Implementations*: [`Caching`](super::Caching), [`Direct`](super::Direct). Each owns a handle to its device's
/// memory and is used by one thread at a time. Work runs in the order of the calls (one in-order queue), so a freed
/// block may serve the very next request; where a program has several streams, [`record_stream`](Self::record_stream)
/// says which of them a free must wait for.
///
/// Everything asked of the driver is told to the `driver` callback, in order, after it happened.
///
/// *To add one*: write a file beside `direct.rs`, keep [`Stats`] by the table in `stats.rs`, and add it to the list in
/// the allocator suite of the tests, which checks the contract below on random programs.
pub trait Allocator: Send {
    /// The name that the command line uses.
    fn name(&self) -> &'static str;

    /// A block of at least `bytes` (> 0) for `stream`. Its contents are garbage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`](crate::Error::DeviceFull) or [`Error::TooLarge`](crate::Error::TooLarge) when everything
    /// that could be given back was and the driver still refused: [`last_failure`](Self::last_failure) then has the
    /// details, and the allocator remains usable. Anything else is the backend's own.
    fn allocate(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Block>;

    /// Takes a block back. An id that is not live is ignored (and is a bug of the caller: debug builds assert).
    fn free(&mut self, id: BlockId, driver: &mut dyn FnMut(DriverEvent));

    /// Says that work on `stream` uses the block: after its free it waits until that work is done.
    /// No effect where blocks are not shared between streams.
    fn record_stream(&mut self, id: BlockId, stream: Stream) {
        let _ = (id, stream);
    }

    /// From here on, the work that a free waits for stays unfinished until [`complete_events`](Self::complete_events).
    /// Everything before is complete. Without this call, work completes at once. For replays.
    fn hold_events(&mut self) {}

    /// Completes all work that a free waits for so far. Blocks come back when the allocator next looks: at the next
    /// allocation. For replays.
    fn complete_events(&mut self) {}

    /// From here on requests are served from a private pool, as those of a CUDA graph are, which is made at its first use
    /// and kept. Policies without such pools serve all alike. For replays.
    fn enter_pool(&mut self, pool: u16) {
        let _ = pool;
    }

    /// Ends what [`enter_pool`](Self::enter_pool) began.
    fn leave_pool(&mut self, pool: u16) {
        let _ = pool;
    }

    /// Gives back to the driver what can be; returns how many bytes that were.
    fn empty_cache(&mut self, driver: &mut dyn FnMut(DriverEvent)) -> u64;

    /// Limits what may be taken from the driver to this fraction of the device's memory; 1 lifts the limit.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) outside 0..=1, where the policy has no such limit, and where the
    /// driver does not say how much memory there is.
    fn set_memory_fraction(&mut self, fraction: f64) -> Result<()> {
        if fraction == 1.0 {
            return Ok(());
        }
        Err(crate::Error::invalid("memory fraction", format!("policy {} has no limit", self.name())))
    }

    /// The counters.
    fn stats(&self) -> &Stats;

    /// The same, to be reset.
    fn stats_mut(&mut self) -> &mut Stats;

    /// Every peak becomes its current value.
    fn reset_peak_stats(&mut self) {
        self.stats_mut().reset_peak();
    }

    /// Every accumulated count becomes 0; current values and peaks stay.
    fn reset_accumulated_stats(&mut self) {
        self.stats_mut().reset_accumulated();
    }

    /// Segments, blocks and their states, as data, by address.
    fn snapshot(&self) -> Snapshot;

    /// Why the last [`allocate`](Self::allocate) that ran out of memory did.
    fn last_failure(&self) -> Option<&AllocationFailure>;
}

/// What `set_per_process_memory_fraction` allows of a device with so many bytes in all; `None`: no limit.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) outside 0..=1, and where the driver does not say how much memory there is.
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
