//! Segments that grow: addresses are reserved once, and memory is mapped page by page.
//!
//! Each pool and stream has one reservation of 9/8 of the device. A block at its end can always grow, so that a growing
//! request does not leave segments that are too small. A reservation begins as one unmapped block.

use super::block::{NONE, Node, PoolIndex, Segment};
use super::config::TorchVersion;
use super::sizes::SMALL_SEGMENT_BYTES;
use super::{Caching, Driver, Request};
use crate::error::{Error, Result};
use crate::memory::DriverEvent;

/// The most that is reserved for one segment: all addresses that a process can have. It limits the reservation on a
/// device of unbounded size (`meta`).
const MAX_RESERVED_BYTES: u64 = 1 << 47;

impl Caching {
    /// Returns a free block of at least the request's size, in no pool. It is the first run of free blocks that is long
    /// enough or can be made long enough, joined by mapping pages. `None` if the driver has no pages left; pages
    /// already mapped stay, free.
    pub(super) fn grow_expandable(&mut self, request: &Request, driver: Driver<'_>) -> Result<Option<u32>> {
        let mut index = match self.find_expandable(request) {
            Some(index) => index,
            None => match self.new_reservation(request, driver)? {
                Some(index) => index,
                None => return Ok(None),
            },
        };
        let node = &self.nodes[index];
        if !node.mapped && !self.map_block(index, node.bytes.min(request.bytes), driver)? {
            return Ok(None);
        }
        while self.nodes[index].bytes < request.bytes {
            let missing = request.bytes - self.nodes[index].bytes;
            let next = self.nodes[index].next;
            if next == NONE {
                return Ok(None); // the request is larger than a whole reservation
            }
            let bytes = missing.min(self.nodes[next].bytes);
            if !self.map_block(next, bytes, driver)? {
                return Ok(None);
            }
            index = next; // it has taken in the part before it
        }
        self.pools[request.pool as usize].remove(&self.nodes, index);
        Ok(Some(index))
    }

    /// Returns the start of the first run of free blocks that is long enough: an unmapped range of the pool and stream,
    /// or the free block before it.
    fn find_expandable(&self, request: &Request) -> Option<u32> {
        let ranges = &self.pools[request.pool as usize].unmapped;
        for &range in ranges.range((request.stream, 0)..=(request.stream, u64::MAX)).map(|(_, index)| index) {
            let prev = self.nodes[range].prev;
            let start = if prev != NONE && self.nodes[prev].is_free() { prev } else { range };
            let (mut bytes, mut index) = (0, start);
            while bytes < request.bytes && index != NONE && self.nodes[index].is_free() {
                bytes += self.nodes[index].bytes;
                index = self.nodes[index].next;
            }
            if bytes >= request.bytes {
                return Some(start);
            }
        }
        None
    }

    /// Bytes of the pages that [`grow_expandable`](Self::grow_expandable) would map.
    pub(super) fn pages_wanted(&self, request: &Request) -> u64 {
        let page_bytes = self.page_bytes(request.pool);
        let Some(mut index) = self.find_expandable(request) else {
            return request.bytes.div_ceil(page_bytes).saturating_mul(page_bytes);
        };
        let (mut missing, mut pages) = (request.bytes, 0);
        while missing > 0 && index != NONE {
            let node = &self.nodes[index];
            let part = missing.min(node.bytes);
            pages += if node.mapped { 0 } else { part.div_ceil(page_bytes) * page_bytes };
            missing -= part;
            index = node.next;
        }
        pages
    }

    pub(super) fn page_bytes(&self, pool: PoolIndex) -> u64 {
        self.page_bytes_of(self.pools[pool as usize].small)
    }

    /// Size of a page of the small pool, or of the large one.
    pub(super) fn page_bytes_of(&self, small: bool) -> u64 {
        if small { SMALL_SEGMENT_BYTES } else { self.config.large_segment_bytes }
    }

    /// Bytes of a reservation: whole pages.
    pub(super) fn reservation_bytes(&self, page_bytes: u64) -> u64 {
        let total = self.total_bytes.unwrap_or(self.memory.limits().max_segment_bytes);
        let most = total.saturating_add(total / 8);
        let wanted = match self.config.expandable_reserve {
            Some(reserve) if self.config.version >= TorchVersion::V2_15 => reserve.bytes(total).min(most),
            _ => most,
        };
        wanted.min(MAX_RESERVED_BYTES).div_ceil(page_bytes) * page_bytes
    }

    /// Reserves addresses for a pool and stream; returns the reservation's one unmapped block, filed as unmapped.
    fn new_reservation(&mut self, request: &Request, driver: Driver<'_>) -> Result<Option<u32>> {
        let &Request { stream, pool, .. } = request;
        let page_bytes = self.page_bytes(pool);
        let newer = self.config.version >= TorchVersion::V2_15;
        let bytes = self.reservation_bytes(page_bytes);
        let memory = self.memory.clone();
        let Some(virtual_memory) = memory.virtual_memory() else { return Ok(None) };
        let id = virtual_memory.reserve(bytes, page_bytes)?;
        let base = self.addresses.take(bytes).inspect_err(|_| virtual_memory.release(id))?;
        driver(DriverEvent::Reserve { address: base, bytes, stream, segment: id });
        let segment = self.segments.insert(Segment { id, base, bytes, first: NONE, page_bytes });
        let made = self.made();
        let node = Node { made, mapped: false, expandable: true, ..Node::new(stream, bytes, pool, base, segment) };
        let index = self.nodes.insert(node);
        self.segments[segment].first = index;
        self.pools[pool as usize].insert(&mut self.nodes, index);
        if newer && bytes < request.bytes {
            self.release_reservation(index, driver);
            return Ok(None);
        }
        Ok(Some(index))
    }

    /// Ends a reservation that consists of one unmapped block.
    pub(super) fn release_reservation(&mut self, index: u32, driver: Driver<'_>) {
        self.pools[self.nodes[index].pool as usize].remove(&self.nodes, index);
        let Some(node) = self.nodes.remove(index) else { return };
        let Some(segment) = self.segments.remove(node.segment) else { return };
        if let Some(virtual_memory) = self.memory.virtual_memory() {
            virtual_memory.release(segment.id);
        }
        let Segment { base: address, bytes, id, .. } = segment;
        driver(DriverEvent::Release { address, bytes, stream: node.stream, segment: id });
    }

    /// Maps the front of an unmapped block: as many pages as hold `bytes`. It merges with its mapped free neighbours
    /// and is filed as free. Returns false if the driver has no room; nothing was mapped then.
    fn map_block(&mut self, index: u32, bytes: u64, driver: Driver<'_>) -> Result<bool> {
        let node = &self.nodes[index];
        let (address, stream, pool) = (node.address, node.stream, node.pool);
        let segment = &self.segments[node.segment];
        let (id, offset, page_bytes) = (segment.id, address - segment.base, segment.page_bytes);
        let mapped = bytes.div_ceil(page_bytes) * page_bytes;
        let memory = self.memory.clone();
        let Some(virtual_memory) = memory.virtual_memory() else { return Ok(false) };
        match virtual_memory.map(id, offset, mapped) {
            Ok(()) => {}
            Err(error @ (Error::DeviceFull { .. } | Error::TooLarge { .. })) => {
                driver(DriverEvent::MapRefused { bytes: page_bytes });
                self.refusal = Some(error);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.pools[pool as usize].remove(&self.nodes, index);
        self.nodes[index].mapped = true;
        self.cut_tail(index, mapped, false);
        let (prev, next) = (self.nodes[index].prev, self.nodes[index].next);
        self.merge(index, prev);
        self.merge(index, next);
        self.pools[pool as usize].insert(&mut self.nodes, index);
        let (small, owner) = (self.pools[pool as usize].small, self.pools[pool as usize].owner);
        self.taken_bytes += mapped;
        self.stats.reserved_bytes.increase(small, mapped);
        self.private.reserve(&mut self.stats, owner, mapped);
        self.stats.num_device_alloc += 1;
        driver(DriverEvent::Map { address, bytes: mapped, page_bytes, stream, segment: id });
        Ok(true)
    }

    /// Unmaps the whole pages of a free mapped block. The parts of pages at its ends stay mapped, as blocks of their
    /// own.
    pub(super) fn unmap_block(&mut self, index: u32, driver: Driver<'_>) {
        let node = &self.nodes[index];
        let (stream, pool) = (node.stream, node.pool);
        let segment = &self.segments[node.segment];
        let (id, base, page_bytes) = (segment.id, segment.base, segment.page_bytes);
        let begin = (node.address - base).div_ceil(page_bytes) * page_bytes;
        let end = (node.address + node.bytes - base) / page_bytes * page_bytes;
        if begin >= end {
            return;
        }
        let bytes = end - begin;
        if let Some(virtual_memory) = self.memory.virtual_memory() {
            virtual_memory.unmap(id, begin, bytes);
        }
        self.pools[pool as usize].remove(&self.nodes, index);
        self.cut_front(index, base + begin);
        self.cut_tail(index, bytes, true);
        self.nodes[index].mapped = false;
        let (prev, next) = (self.nodes[index].prev, self.nodes[index].next);
        self.merge(index, prev);
        self.merge(index, next);
        self.pools[pool as usize].insert(&mut self.nodes, index);
        let (small, owner) = (self.pools[pool as usize].small, self.pools[pool as usize].owner);
        self.taken_bytes -= bytes;
        self.stats.reserved_bytes.decrease(small, bytes);
        self.private.unreserve(&mut self.stats, owner, bytes);
        self.stats.num_device_free += 1;
        driver(DriverEvent::Unmap { address: base + begin, bytes, page_bytes, stream, segment: id });
    }

    /// Creates a block in the same reservation as `like`.
    fn part(&mut self, like: u32, address: u64, bytes: u64, mapped: bool) -> Node {
        let made = self.made();
        let &Node { stream, pool, segment, .. } = &self.nodes[like];
        Node { made, mapped, expandable: true, ..Node::new(stream, bytes, pool, address, segment) }
    }

    /// Shortens a block that is in no pool to `bytes`; the rest after it becomes a free block, mapped or unmapped.
    fn cut_tail(&mut self, index: u32, bytes: u64, mapped: bool) {
        let rest = self.nodes[index].bytes - bytes;
        if rest == 0 {
            return;
        }
        let end = self.nodes[index].address + bytes;
        let mut tail = self.part(index, end, rest, mapped);
        let next = self.nodes[index].next;
        (tail.prev, tail.next) = (index, next);
        let pool = tail.pool;
        let tail = self.nodes.insert(tail);
        if next != NONE {
            self.nodes[next].prev = tail;
        }
        self.nodes[index].next = tail;
        self.nodes[index].bytes = bytes;
        self.pools[pool as usize].insert(&mut self.nodes, tail);
    }

    /// Moves the start of a block that is in no pool to `address`; the part before it becomes a free mapped block.
    fn cut_front(&mut self, index: u32, address: u64) {
        let before = address - self.nodes[index].address;
        if before == 0 {
            return;
        }
        let start = self.nodes[index].address;
        let mut front = self.part(index, start, before, true);
        let prev = self.nodes[index].prev;
        (front.prev, front.next) = (prev, index);
        let (pool, segment) = (front.pool, front.segment);
        let front = self.nodes.insert(front);
        match prev {
            NONE => self.segments[segment].first = front,
            prev => self.nodes[prev].next = front,
        }
        let node = &mut self.nodes[index];
        node.prev = front;
        node.address = address;
        node.bytes -= before;
        self.pools[pool as usize].insert(&mut self.nodes, front);
    }
}
