//! Blocks and segments: entries of slabs, linked by index.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::backend::SegmentId;
use crate::memory::Stream;

pub(super) const NONE: u32 = u32::MAX;

/// Index of a pool: the default large one, the default small one, then two for each private pool.
pub(super) type PoolIndex = u32;
/// The default pool for blocks above 1 MiB.
pub(super) const LARGE: PoolIndex = 0;
/// The default pool for blocks up to 1 MiB.
pub(super) const SMALL: PoolIndex = 1;

/// A run of bytes in one segment.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Bytes that the client asked for. A free block keeps the number of its last client, as in PyTorch.
    pub(super) requested_bytes: u64,
    /// The pool's count of searches when the block was last freed: its age for garbage collection.
    pub(super) freed_at: u64,
    /// Position among free blocks of the same size, if the address does not decide it
    /// ([`Caching::made`](super::Caching::made)).
    pub(super) made: Option<NonZeroU64>,
    pub(super) stream: Stream,
    pub(super) segment: u32,
    /// Neighbours in the segment, in order of address; [`NONE`] at the segment's ends.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Number of events that its free still waits for.
    pub(super) events: u32,
    pub(super) pool: PoolIndex,
    pub(super) allocated: bool,
    /// True if it has memory: false only for the unmapped ranges of expandable segments.
    pub(super) mapped: bool,
    pub(super) expandable: bool,
    /// True if streams were recorded on it; they are stored elsewhere.
    pub(super) recorded: bool,
}

impl Node {
    pub(super) fn new(stream: Stream, bytes: u64, pool: PoolIndex, address: u64, segment: u32) -> Self {
        Self {
            address,
            bytes,
            requested_bytes: 0,
            freed_at: 0,
            made: None,
            stream,
            segment,
            prev: NONE,
            next: NONE,
            events: 0,
            pool,
            allocated: false,
            mapped: true,
            expandable: false,
            recorded: false,
        }
    }

    /// True if it shares its segment with other blocks.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }

    /// True if no client holds it and it waits for no event.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        !self.allocated && self.events == 0 && !self.recorded
    }
}

/// The result of one driver call: an ordinary segment, or a reservation that grows.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) id: SegmentId,
    pub(super) base: u64,
    pub(super) bytes: u64,
    /// Its first block.
    pub(super) first: u32,
    /// Size of a page; only for an expandable segment.
    pub(super) page_bytes: u64,
}

/// The streams recorded on one block, in the order of the calls, each once.
pub(super) type Streams = SmallVec<[Stream; 2]>;
