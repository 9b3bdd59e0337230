//! The common part of the policies with one pool: blocks that are split from segments and merge again.

use std::sync::Arc;

use super::address::AddressSpace;
use super::allocator::{AllocationFailure, Allocator, Block, BlockId, DriverEvent, allowed_bytes};
use super::slab::Slab;
use super::snapshot::{BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};
use super::stats::Stats;
use super::stream::Stream;
use crate::backend::{DeviceMemory, Region, SegmentId};
use crate::error::{Error, Result};

const NONE: u32 = u32::MAX;
/// Requests of this size or more are refused at once. Below it, rounding cannot overflow.
const LIMIT_BYTES: u64 = 1 << 60;

/// A free block, as the rules of a policy file it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlock {
    /// Identifies the block while it is free.
    pub index: u32,
    /// The stream whose requests it serves.
    pub stream: Stream,
    /// Its size.
    pub bytes: u64,
    /// Its virtual address.
    pub address: u64,
}

/// Memory that the driver could still give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The largest segment that the driver might give: free memory, within the limits of the device and of this
    /// allocator.
    pub free_bytes: u64,
    /// Memory of the device; the largest segment, if the driver does not report it.
    pub total_bytes: u64,
}

/// The rules of a policy: which free block serves a request, where it is split, which blocks merge, how large segments
/// are.
///
/// [`Arena`] keeps the blocks, segments and statistics, so a policy is one file with one `impl` of this trait.
pub trait Fit: Send {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Rounds a request of `bytes` (0 < `bytes` < 2^60) to the size of its block: a multiple of 256.
    fn round(&self, bytes: u64) -> u64;

    /// Finds a free block of at least `bytes` (rounded) for the stream.
    fn find(&self, stream: Stream, bytes: u64) -> Option<u32>;

    /// Files a free block.
    fn insert(&mut self, block: FreeBlock);

    /// Removes a filed block.
    fn remove(&mut self, block: FreeBlock);

    /// Returns where to split a block of `block_bytes` for a rounded request: the size of the front, which is asked
    /// about again. `None`: the request gets the whole block.
    fn cut(&self, block_bytes: u64, bytes: u64) -> Option<u64>;

    /// True if two free neighbours may merge, given the left one's offset in its segment and both sizes.
    fn merges(&self, left_offset: u64, left_bytes: u64, right_bytes: u64) -> bool {
        let _ = (left_offset, left_bytes, right_bytes);
        true
    }

    /// Returns the size of segment to ask the driver for, for a rounded request that fits no block. `refused` is the
    /// size that the driver refused last. `None`: give up.
    fn segment(&mut self, bytes: u64, refused: Option<u64>, room: Room) -> Option<u64>;

    /// Notes that the driver gave a segment of this size.
    fn grown(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Returns the largest request that an otherwise empty segment of at most `free_bytes` could serve.
    fn largest(&self, free_bytes: u64) -> u64;
}

#[derive(Clone, Debug)]
struct Node {
    stream: Stream,
    address: u64,
    bytes: u64,
    requested_bytes: u64,
    segment: u32,
    prev: u32,
    next: u32,
    allocated: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    id: SegmentId,
    base: u64,
    bytes: u64,
    first: u32,
    stream: Stream,
}

/// An allocator with one pool and the rules of a policy.
///
/// Free neighbours merge if the rules allow it. Segments stay until the cache is emptied or the driver refuses; then
/// wholly free segments are given back and the driver is asked once more. Streams do not share blocks. All counts are
/// in the large pool.
pub struct Arena<F> {
    rules: F,
    memory: Arc<dyn DeviceMemory>,
    addresses: AddressSpace,
    nodes: Slab<Node>,
    segments: Slab<Segment>,
    stats: Stats,
    allowed_bytes: Option<u64>,
    failure: Option<AllocationFailure>,
}

impl<F: Fit> Arena<F> {
    /// Creates an allocator on this device with these rules.
    pub fn with_rules(memory: Arc<dyn DeviceMemory>, rules: F) -> Self {
        Self {
            rules,
            memory,
            addresses: AddressSpace::new(),
            nodes: Slab::new(),
            segments: Slab::new(),
            stats: Stats::default(),
            allowed_bytes: None,
            failure: None,
        }
    }

    fn room(&self) -> Room {
        let info = self.memory.memory_info();
        let most = self.memory.limits().max_segment_bytes;
        let taken = self.stats.reserved_bytes.all.current;
        let allowed = self.allowed_bytes.map_or(u64::MAX, |allowed| allowed.saturating_sub(taken));
        let free_bytes = info.map_or(most, |info| info.free_bytes).min(most).min(allowed);
        Room { free_bytes, total_bytes: info.map_or(most, |info| info.total_bytes) }
    }

    fn filed(&self, index: u32) -> FreeBlock {
        let node = &self.nodes[index];
        FreeBlock { index, stream: node.stream, bytes: node.bytes, address: node.address }
    }

    /// Asks the driver until it gives a segment or the rules give up. Returns the segment's one block, which is filed.
    fn grow(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Option<u32>> {
        let mut refused = None;
        while let Some(size) = self.rules.segment(bytes, refused, self.room()) {
            let taken = self.stats.reserved_bytes.all.current;
            if self.allowed_bytes.is_some_and(|allowed| taken.saturating_add(size) > allowed) {
                refused = Some(size);
                continue;
            }
            match self.memory.alloc_segment(size) {
                Ok(id) => return self.adopt(id, size, stream, driver).map(Some),
                Err(error) if error.is_out_of_memory() => {
                    driver(DriverEvent::Refused { bytes: size });
                    refused = Some(size);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn adopt(&mut self, id: SegmentId, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<u32> {
        let base = self.addresses.take(bytes).inspect_err(|_| self.memory.free_segment(id))?;
        let segment = self.segments.insert(Segment { id, base, bytes, first: NONE, stream });
        let index = self.nodes.insert(Node {
            stream,
            address: base,
            bytes,
            requested_bytes: 0,
            segment,
            prev: NONE,
            next: NONE,
            allocated: false,
        });
        self.segments[segment].first = index;
        self.stats.segment_taken(false, bytes);
        self.rules.grown(bytes);
        self.rules.insert(self.filed(index));
        driver(DriverEvent::SegmentAlloc { address: base, bytes, stream, segment: id });
        Ok(index)
    }

    /// Gives back every segment that consists of one free block.
    fn release_free(&mut self, driver: &mut dyn FnMut(DriverEvent)) -> u64 {
        let is_free = |node: &Node| !node.allocated && node.prev == NONE && node.next == NONE;
        let mut free: Vec<_> =
            self.nodes.iter().filter(|(_, node)| is_free(node)).map(|(index, node)| (node.address, index)).collect();
        free.sort_unstable();
        let mut released = 0;
        for (_, index) in free {
            self.rules.remove(self.filed(index));
            let Some(node) = self.nodes.remove(index) else { continue };
            let Some(Segment { id, base, bytes, stream, .. }) = self.segments.remove(node.segment) else { continue };
            self.memory.free_segment(id);
            self.stats.segment_given_back(false, bytes);
            released += bytes;
            driver(DriverEvent::SegmentFree { address: base, bytes, stream, segment: id });
        }
        released
    }

    /// Removes a filed block and splits it as the rules say; the rests are filed.
    fn serve(&mut self, index: u32, bytes: u64, requested_bytes: u64) -> u32 {
        self.rules.remove(self.filed(index));
        let (blocks_before, bytes_before) = self.split_counts(index);
        let (mut blocks_after, mut bytes_after) = (0, 0);
        while let Some(front) = self.rules.cut(self.nodes[index].bytes, bytes) {
            let rest = self.cut(index, front);
            blocks_after += 1;
            bytes_after += self.nodes[rest].bytes;
            self.rules.insert(self.filed(rest));
        }
        self.count_split(blocks_before, bytes_before, blocks_after, bytes_after);
        let node = &mut self.nodes[index];
        node.allocated = true;
        node.requested_bytes = requested_bytes;
        self.stats.served(false, node.bytes, requested_bytes);
        index
    }

    /// Shortens a block to `front` bytes; returns the rest, which is not filed.
    fn cut(&mut self, index: u32, front: u64) -> u32 {
        let node = &self.nodes[index];
        let rest = Node {
            address: node.address + front,
            bytes: node.bytes - front,
            requested_bytes: 0,
            prev: index,
            ..node.clone()
        };
        let next = rest.next;
        let rest = self.nodes.insert(rest);
        if next != NONE {
            self.nodes[next].prev = rest;
        }
        let node = &mut self.nodes[index];
        node.next = rest;
        node.bytes = front;
        rest
    }

    /// The count and bytes by which a free block adds to the inactive splits.
    fn split_counts(&self, index: u32) -> (u64, u64) {
        let node = &self.nodes[index];
        if node.prev != NONE || node.next != NONE { (1, node.bytes) } else { (0, 0) }
    }

    fn count_split(&mut self, blocks_before: u64, bytes_before: u64, blocks_after: u64, bytes_after: u64) {
        let stats = &mut self.stats;
        for (stat, before, after) in [
            (&mut stats.inactive_split, blocks_before, blocks_after),
            (&mut stats.inactive_split_bytes, bytes_before, bytes_after),
        ] {
            if after > before {
                stat.increase(false, after - before);
            } else if before > after {
                stat.decrease(false, before - after);
            }
        }
    }

    /// Merges a free block that is not filed with free neighbours, as the rules allow. Returns the resulting block, and
    /// the count and bytes of the merged neighbours that were inactive splits.
    fn merge(&mut self, mut index: u32) -> (u32, u64, u64) {
        let (mut blocks, mut bytes) = (0, 0);
        loop {
            let node = &self.nodes[index];
            let Some((left, right)) =
                [(node.prev, index), (index, node.next)].into_iter().find(|&pair| self.joins(pair))
            else {
                return (index, blocks, bytes);
            };
            let other = if left == index { right } else { left };
            blocks += 1;
            bytes += self.nodes[other].bytes;
            self.rules.remove(self.filed(other));
            let Some(gone) = self.nodes.remove(right) else { return (index, blocks, bytes) };
            self.nodes[left].bytes += gone.bytes;
            self.nodes[left].next = gone.next;
            if gone.next != NONE {
                self.nodes[gone.next].prev = left;
            }
            index = left;
        }
    }

    fn joins(&self, (left, right): (u32, u32)) -> bool {
        let (Some(a), Some(b)) = (self.nodes.get(left), self.nodes.get(right)) else { return false };
        // The block being freed is marked free already; its neighbour must be free too.
        !a.allocated && !b.allocated && self.rules.merges(a.address - self.segments[a.segment].base, a.bytes, b.bytes)
    }

    fn fail(&mut self, requested_bytes: u64, bytes: u64, stream: Stream, released_bytes: u64) -> Error {
        self.stats.num_ooms += 1;
        let free = self.nodes.iter().filter(|(_, node)| !node.allocated && node.stream == stream);
        let mut cached: Vec<u64> = free.map(|(_, node)| node.bytes).collect();
        cached.sort_unstable();
        let cached = cached.into_iter().rev().find(|&size| self.rules.find(stream, self.rules.round(size)).is_some());
        let room = self.room();
        self.failure = Some(AllocationFailure {
            requested_bytes,
            block_bytes: bytes,
            segment_bytes: bytes,
            allowed_bytes: self.allowed_bytes,
            released_bytes,
            largest_fit_bytes: cached.unwrap_or(0).max(self.rules.largest(room.free_bytes)),
            ..AllocationFailure::default()
        });
        let limit_bytes = self.memory.limits().max_segment_bytes;
        if bytes > limit_bytes {
            return Error::TooLarge { requested_bytes, limit_bytes };
        }
        Error::DeviceFull { requested_bytes, free_bytes: self.memory.memory_info().map(|info| info.free_bytes) }
    }

    fn entry(&self, segment: &Segment) -> SegmentSnapshot {
        let mut blocks = Vec::new();
        let mut index = segment.first;
        while index != NONE {
            let node = &self.nodes[index];
            let state = if node.allocated { BlockState::ActiveAllocated } else { BlockState::Inactive };
            let &Node { address, bytes, requested_bytes, .. } = node;
            blocks.push(BlockSnapshot { address, bytes, requested_bytes, state });
            index = node.next;
        }
        SegmentSnapshot {
            address: segment.base,
            total_bytes: segment.bytes,
            stream: segment.stream,
            small: false,
            expandable: false,
            pool_id: (0, 0),
            blocks,
        }
    }
}

impl<F: Fit> Allocator for Arena<F> {
    fn name(&self) -> &'static str {
        self.rules.name()
    }

    fn allocate(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Block> {
        if bytes >= LIMIT_BYTES {
            return Err(self.fail(bytes, bytes, stream, 0));
        }
        let rounded = self.rules.round(bytes);
        let mut found = self.rules.find(stream, rounded);
        if found.is_none() {
            found = self.grow(rounded, stream, driver)?;
        }
        if found.is_none() {
            self.stats.num_alloc_retries += 1;
            let released = self.release_free(driver);
            found = self.grow(rounded, stream, driver)?;
            if found.is_none() {
                return Err(self.fail(bytes, rounded, stream, released));
            }
        }
        let index = self.serve(found.unwrap_or(NONE), rounded, bytes);
        let node = &self.nodes[index];
        let segment = &self.segments[node.segment];
        let region = Region { segment: segment.id, offset: node.address - segment.base, len: bytes };
        Ok(Block { id: BlockId(index), region, address: node.address, requested_bytes: bytes, bytes: node.bytes })
    }

    fn free(&mut self, id: BlockId, _driver: &mut dyn FnMut(DriverEvent)) {
        let live = self.nodes.get(id.0).is_some_and(|node| node.allocated);
        debug_assert!(live, "{id:?} is not live");
        if !live {
            return;
        }
        let node = &mut self.nodes[id.0];
        node.allocated = false;
        let (bytes, requested_bytes) = (node.bytes, node.requested_bytes);
        self.stats.free_requested(false, bytes);
        let (index, blocks_gone, bytes_gone) = self.merge(id.0);
        self.rules.insert(self.filed(index));
        let (blocks, split_bytes) = self.split_counts(index);
        self.count_split(blocks_gone, bytes_gone, blocks, split_bytes);
        self.stats.free_completed(false, bytes, requested_bytes);
    }

    fn empty_cache(&mut self, driver: &mut dyn FnMut(DriverEvent)) -> u64 {
        self.release_free(driver)
    }

    fn set_memory_fraction(&mut self, fraction: f64) -> Result<()> {
        self.allowed_bytes = allowed_bytes(fraction, self.memory.memory_info().map(|info| info.total_bytes))?;
        Ok(())
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn snapshot(&self) -> Snapshot {
        let mut segments: Vec<_> = self.segments.iter().map(|(_, segment)| self.entry(segment)).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        Snapshot { segments }
    }

    fn last_failure(&self) -> Option<&AllocationFailure> {
        self.failure.as_ref()
    }
}

impl<F> Drop for Arena<F> {
    fn drop(&mut self) {
        self.segments.iter().for_each(|(_, segment)| self.memory.free_segment(segment.id));
    }
}
