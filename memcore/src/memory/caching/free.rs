//! Freeing a block.

use super::Caching;
use super::block::NONE;

impl Caching {
    /// Frees a block for its client: at once, or when the work recorded on it is done.
    pub(super) fn free_requested(&mut self, index: u32) {
        let live = self.nodes.get(index).is_some_and(|node| node.allocated);
        debug_assert!(live, "block {index} is not allocated");
        if !live {
            return;
        }
        let node = &mut self.nodes[index];
        node.allocated = false;
        let (bytes, recorded) = (node.bytes, node.recorded);
        let small = self.pools[node.pool as usize].small;
        self.stats.free_requested(small, bytes);
        if bytes >= self.config.max_split_size_bytes {
            self.stats.oversize_allocations.decrease_to_zero(1);
        }
        if !recorded {
            self.free_block(index);
        } else if self.captures() {
            self.events.defer(index);
        } else {
            self.insert_events(index);
        }
    }

    /// Makes the block free and merges it with its free neighbours.
    #[inline(always)]
    pub(super) fn free_block(&mut self, index: u32) {
        let node = &self.nodes[index];
        let (bytes, requested_bytes, pool, prev, next) =
            (node.bytes, node.requested_bytes, node.pool, node.prev, node.next);
        let (mut blocks_gone, mut bytes_gone) = (0u64, 0u64);
        for neighbour in [prev, next] {
            let merged = self.merge(index, neighbour);
            if merged > 0 {
                blocks_gone += 1;
                bytes_gone += merged;
            }
        }
        self.pools[pool as usize].insert(&mut self.nodes, index);
        let node = &self.nodes[index];
        let small = self.pools[pool as usize].small;
        if !node.expandable {
            let (blocks_new, bytes_new) = if node.is_split() { (1, node.bytes) } else { (0, 0) };
            // Each counter takes one net change, as PyTorch's accumulated counts do.
            let stats = &mut self.stats;
            for (stat, new, gone) in [
                (&mut stats.inactive_split, blocks_new, blocks_gone),
                (&mut stats.inactive_split_bytes, bytes_new, bytes_gone),
            ] {
                if new > gone {
                    stat.increase(small, new - gone);
                } else if gone > new {
                    stat.decrease(small, gone - new);
                }
            }
        }
        self.stats.free_completed(small, bytes, requested_bytes);
    }

    /// Merges the neighbour `from` into `into` if it is free and mapped alike; returns its bytes.
    /// `into` must be in no pool.
    #[inline(always)]
    pub(super) fn merge(&mut self, into: u32, from: u32) -> u64 {
        if from == NONE {
            return 0;
        }
        let source = &self.nodes[from];
        if !source.is_free() || source.mapped != self.nodes[into].mapped {
            return 0;
        }
        let (address, bytes, segment, prev, next) =
            (source.address, source.bytes, source.segment, source.prev, source.next);
        self.pools[source.pool as usize].remove(&self.nodes, from);
        self.nodes.discard(from);
        let target = &mut self.nodes[into];
        target.bytes += bytes;
        if next == into {
            target.address = address;
            target.prev = prev;
            match prev {
                NONE => self.segments[segment].first = into,
                prev => self.nodes[prev].next = into,
            }
        } else {
            target.next = next;
            if next != NONE {
                self.nodes[next].prev = into;
            }
        }
        bytes
    }
}
