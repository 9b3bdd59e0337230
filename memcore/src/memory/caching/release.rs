//! Giving memory back to the driver.

use super::block::{LARGE, PoolIndex, SMALL};
use super::free_list::Key;
use super::private::PoolId;
use super::{Caching, Driver, Request};
use crate::memory::DriverEvent;

impl Caching {
    /// Gives back every wholly free segment and page: of the default pools and of private pools without users, or of
    /// one private pool. Waits for the work of all streams first.
    pub(super) fn release_cached(&mut self, only: Option<PoolId>, driver: Driver<'_>) {
        if only.is_none() && !self.captures() {
            self.synchronize_events(None);
            self.release_blocks(LARGE, driver);
            self.release_blocks(SMALL, driver);
        }
        for owner in self.private.unused(only) {
            if only.is_some() {
                self.synchronize_events(Some(owner));
            }
            let [large, small] = self.private.pools(owner);
            self.release_blocks(small, driver);
            self.release_blocks(large, driver);
            self.delete_if_empty(owner);
        }
    }

    fn release_blocks(&mut self, pool: PoolIndex, driver: Driver<'_>) {
        let free: Vec<u32> = self.pools[pool as usize].free.blocks().collect();
        let (expandable, ordinary): (Vec<u32>, Vec<u32>) =
            free.into_iter().partition(|&index| self.nodes[index].expandable);
        for index in ordinary {
            if !self.nodes[index].is_split() {
                self.release_segment(index, driver);
            }
        }
        for index in expandable {
            self.unmap_block(index, driver);
            let node = &self.nodes[index];
            if !node.mapped && !node.is_split() {
                self.release_reservation(index, driver);
            }
        }
    }

    /// Gives back a segment that consists of one free block.
    pub(super) fn release_segment(&mut self, index: u32, driver: Driver<'_>) {
        self.pools[self.nodes[index].pool as usize].remove(&self.nodes, index);
        let Some(node) = self.nodes.remove(index) else { return };
        let Some(segment) = self.segments.remove(node.segment) else { return };
        let pool = &self.pools[node.pool as usize];
        let (small, owner, bytes) = (pool.small, pool.owner, node.bytes);
        self.memory.free_segment(segment.id);
        self.addresses.give_back(segment.base);
        driver(DriverEvent::SegmentFree { address: segment.base, bytes, stream: node.stream, segment: segment.id });
        self.taken_bytes -= bytes;
        self.private.unreserve(&mut self.stats, owner, bytes);
        self.stats.segment_given_back(small, bytes);
        if bytes >= self.config.max_split_size_bytes {
            self.stats.oversize_segments.decrease_to_zero(1);
        }
    }

    /// With a limit on splitting, gives back blocks too large to split until the request could take their place: the
    /// smallest one that is large enough, or else the largest ones until their sum suffices. Returns whether it was
    /// enough.
    ///
    /// Blocks that were split under an earlier setting are skipped, and so are those of expandable segments: their
    /// neighbours are in use. (PyTorch asks the driver to free them, which is an error.)
    pub(super) fn release_oversize(&mut self, request: &Request, driver: Driver<'_>) -> bool {
        if self.config.max_split_size_bytes == u64::MAX {
            return false;
        }
        let wanted = request.bytes.max(self.config.max_split_size_bytes);
        let start = Key { stream: request.stream, bytes: wanted, address: 0 };
        let free = &self.pools[request.pool as usize].free;
        let fits = free.at_least(request.stream, wanted).map(|place| free.at(place).1);
        if let Some(index) = fits
            && self.is_whole_segment(index)
        {
            self.release_segment(index, driver);
            return true;
        }
        let (mut released, mut end) = (0, start);
        while released < wanted {
            let below = self.pools[request.pool as usize].free.below(&end);
            let Some((key, index)) = below else { break };
            if key.bytes < self.config.max_split_size_bytes {
                break;
            }
            if self.is_whole_segment(index) {
                released += key.bytes;
                self.release_segment(index, driver);
            }
            end = key;
        }
        released >= wanted
    }

    fn is_whole_segment(&self, index: u32) -> bool {
        let node = &self.nodes[index];
        !node.expandable && !node.is_split()
    }
}
