//! Handing a block to a client.

use super::block::{NONE, Node};
use super::{Caching, Request};

impl Caching {
    /// Gives the request the block `found`, which is in no pool, or with `split` its front; returns the index of the
    /// given block.
    pub(super) fn serve(&mut self, found: u32, request: &Request, split: bool) -> u32 {
        let node = &self.nodes[found];
        let (already, expandable, pool) = (node.is_split(), node.expandable, node.pool);
        let small = self.pools[pool as usize].small;
        let index = if split { self.split_front(found, request.bytes) } else { found };
        let bytes = self.nodes[index].bytes;
        if !expandable {
            if split && already {
                self.stats.inactive_split_bytes.decrease(small, bytes);
            } else if split {
                self.stats.inactive_split_bytes.increase(small, self.nodes[found].bytes);
                self.stats.inactive_split.increase(small, 1);
            } else if already {
                self.stats.inactive_split_bytes.decrease(small, bytes);
                self.stats.inactive_split.decrease(small, 1);
            }
        }
        let node = &mut self.nodes[index];
        node.allocated = true;
        node.requested_bytes = request.requested_bytes;
        self.stats.served(small, bytes, request.requested_bytes);
        if bytes >= self.config.max_split_size_bytes {
            self.stats.oversize_allocations.increase(1);
        }
        index
    }

    /// Splits `bytes` off the front of a block. The rest remains the same block, so that it keeps the requested size of
    /// its last client, and returns to the pool.
    fn split_front(&mut self, rest: u32, bytes: u64) -> u32 {
        let made = self.made();
        let node = &mut self.nodes[rest];
        let mut front = Node { made, ..Node::new(node.stream, bytes, node.pool, node.address, node.segment) };
        front.expandable = node.expandable;
        front.prev = node.prev;
        front.next = rest;
        node.address += bytes;
        node.bytes -= bytes;
        let (pool, segment, prev) = (node.pool, node.segment, node.prev);
        let index = self.nodes.insert(front);
        self.nodes[rest].prev = index;
        match prev {
            NONE => self.segments[segment].first = index,
            prev => self.nodes[prev].next = index,
        }
        self.pools[pool as usize].insert(&mut self.nodes, rest);
        index
    }
}
