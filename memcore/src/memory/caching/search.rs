//! Best fit among the free blocks of one pool and stream.

use std::collections::btree_map::Range;

use super::block::{NONE, Node};
use super::pool::Key;
use super::{Caching, Request};
use crate::memory::slab::Slab;

impl Caching {
    /// Takes the block that serves the request out of its pool, if there is one.
    pub(super) fn search(&mut self, request: &Request) -> Option<u32> {
        if self.collects() {
            self.pools[request.pool as usize].searches += 1;
        }
        let (key, index) = self.best_fit(request)?;
        self.pools[request.pool as usize].free.remove(&key);
        Some(index)
    }

    /// The block that serves the request, if there is one: the first in order of size and address, unless the settings
    /// refuse it; what comes after it is not looked at then.
    #[inline]
    pub(super) fn best_fit(&self, request: &Request) -> Option<(Key, u32)> {
        let pool = &self.pools[request.pool as usize];
        let start = Key { stream: request.stream, bytes: request.bytes, address: 0 };
        let mut from = pool.free.range(start..);
        let (&key, &index) = from.next().filter(|(key, _)| key.stream == request.stream)?;
        let (key, index) = if !self.nodes[index].expandable {
            (key, index)
        } else if request.expandable {
            prefer_interior(&self.nodes, (key, index), from)
        } else {
            let mut rest = from.map_while(|(&key, &index)| (key.stream == request.stream).then_some((key, index)));
            rest.find(|&(_, index)| !self.nodes[index].expandable)?
        };
        let limit = self.config.max_split_size_bytes;
        if request.bytes < limit && key.bytes >= limit {
            return None;
        }
        let slack = self.config.max_non_split_rounding_bytes;
        if request.bytes >= limit && key.bytes >= request.bytes.saturating_add(slack) {
            return None;
        }
        Some((key, index))
    }

    /// Whether the rest of the block becomes a block of its own.
    pub(super) fn should_split(&self, index: u32, request: &Request) -> bool {
        let node = &self.nodes[index];
        let pool = &self.pools[node.pool as usize];
        if pool.owner.is_some_and(|owner| self.private.never_splits(owner)) {
            return false;
        }
        let rest = node.bytes - request.bytes;
        if pool.small || request.expandable {
            rest >= super::sizes::BLOCK_BYTES
        } else {
            request.bytes < self.config.max_split_size_bytes && rest > super::sizes::SMALL_BYTES
        }
    }
}

/// Among expandable blocks, moves on while the next one leaves less behind it that could still be mapped: a hole inside
/// a segment is preferred to the end of one, even if the hole is bigger.
fn prefer_interior(nodes: &Slab<Node>, first: (Key, u32), rest: Range<'_, Key, u32>) -> (Key, u32) {
    let reach = |index: u32| {
        let node = &nodes[index];
        let unmapped = node.next != NONE && !nodes[node.next].mapped;
        node.bytes + if unmapped { nodes[node.next].bytes } else { 0 }
    };
    let mut best = first;
    for (&key, &index) in rest {
        let moves_on = nodes[best.1].expandable && key.stream == first.0.stream && reach(index) < reach(best.1);
        if !moves_on {
            break;
        }
        best = (key, index);
    }
    best
}
