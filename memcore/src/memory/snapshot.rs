//! An allocator's memory as data.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::stream::Stream;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// A client holds it.
    ActiveAllocated,
    /// Freed, but waits for the work of other streams.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSnapshot {
    /// Virtual address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that the client asked for. On a free block: the request of its last client, or 0.
    pub requested_bytes: u64,
    /// State of the block.
    pub state: BlockState,
}

/// One segment: memory that the driver gave, tiled by blocks. An expandable segment has one entry per run of mapped
/// pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// Virtual address.
    pub address: u64,
    /// Size in bytes: the sum of its blocks.
    pub total_bytes: u64,
    /// The stream whose blocks it holds.
    pub stream: Stream,
    /// True if it belongs to the pool of small blocks.
    pub small: bool,
    /// True if it can grow.
    pub expandable: bool,
    /// Id of the private pool; (0, 0): none.
    pub pool_id: (u64, u64),
    /// Its blocks, in order of address.
    pub blocks: Vec<BlockSnapshot>,
}

impl SegmentSnapshot {
    fn sum(&self, counts: impl Fn(&BlockSnapshot) -> bool, of: impl Fn(&BlockSnapshot) -> u64) -> u64 {
        self.blocks.iter().filter(|block| counts(block)).map(of).sum()
    }

    /// Bytes of blocks that clients hold.
    pub fn allocated_bytes(&self) -> u64 {
        self.sum(|block| block.state == BlockState::ActiveAllocated, |block| block.bytes)
    }

    /// Bytes of blocks that clients hold or whose free waits for other streams.
    pub fn active_bytes(&self) -> u64 {
        self.sum(|block| block.state != BlockState::Inactive, |block| block.bytes)
    }

    /// Bytes that clients asked for, summed over the active blocks.
    pub fn requested_bytes(&self) -> u64 {
        self.sum(|block| block.state != BlockState::Inactive, |block| block.requested_bytes)
    }
}

/// All segments, in order of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The segments.
    pub segments: Vec<SegmentSnapshot>,
}

/// The hash of [`Snapshot::layout`], fed by segment and block in order of address.
#[derive(Default)]
pub(super) struct LayoutHash(FxHasher);

impl LayoutHash {
    /// The blocks that follow are of a segment with this stream, private pool, and whether it is of small blocks and expandable.
    pub(super) fn begin_segment(&mut self, stream: Stream, pool_id: (u64, u64), kind: (bool, bool)) {
        (stream.0, pool_id, kind).hash(&mut self.0);
    }

    /// The next block.
    pub(super) fn add(&mut self, bytes: u64, state: BlockState, requested_bytes: u64) {
        let held = (state != BlockState::Inactive).then_some(requested_bytes);
        (bytes, state as u8, held).hash(&mut self.0);
    }

    pub(super) fn finish(self) -> u64 {
        self.0.finish()
    }
}

impl Snapshot {
    /// A hash of all that decides what the allocator does next: the order of its segments and blocks, their sizes, what is free and what was asked for.
    /// Addresses themselves do not count: segments that are given back and taken again get new ones.
    pub fn layout(&self) -> u64 {
        let mut layout = LayoutHash::default();
        for segment in &self.segments {
            layout.begin_segment(segment.stream, segment.pool_id, (segment.small, segment.expandable));
            segment.blocks.iter().for_each(|block| layout.add(block.bytes, block.state, block.requested_bytes));
        }
        layout.finish()
    }

    /// Bytes taken from the driver.
    pub fn reserved_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.total_bytes).sum()
    }

    /// Bytes of blocks that clients hold.
    pub fn allocated_bytes(&self) -> u64 {
        self.segments.iter().map(SegmentSnapshot::allocated_bytes).sum()
    }

    /// The largest free block, in bytes.
    pub fn largest_inactive_bytes(&self) -> u64 {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == BlockState::Inactive).map(|block| block.bytes).max().unwrap_or(0)
    }
}
