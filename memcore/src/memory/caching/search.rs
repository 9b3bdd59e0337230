//! Best fit among the free blocks of one pool and stream.

use super::block::{NONE, Node};
use super::free_list::{Key, Place};
use super::{Caching, Request};
use crate::memory::slab::Slab;

/// A free block: its place in the list, its key, and its index.
type Found = (Place, Key, u32);

impl Caching {
    /// Removes the block that serves the request from its pool and returns it.
    #[inline(always)]
    pub(super) fn search(&mut self, request: &Request) -> Option<u32> {
        if self.collects() {
            self.pools[request.pool as usize].searches += 1;
        }
        let place = self.best_fit(request)?;
        Some(self.pools[request.pool as usize].free.take(place))
    }

    /// Finds the block that serves the request: the first by size and address. If the settings refuse that block, later
    /// ones are not considered.
    #[inline(always)]
    pub(super) fn best_fit(&self, request: &Request) -> Option<Place> {
        let free = &self.pools[request.pool as usize].free;
        let first = free.at_least(request.stream, request.bytes)?;
        let (bytes, block) = free.at(first);
        if self.nodes[block].expandable {
            return self.best_fit_from(first, request);
        }
        self.is_acceptable(bytes, request).then_some(first)
    }

    /// Like [`best_fit`](Self::best_fit), if the first candidate is expandable.
    #[cold]
    fn best_fit_from(&self, first: Place, request: &Request) -> Option<Place> {
        let free = &self.pools[request.pool as usize].free;
        let mut candidates = free.from(first);
        let (place, key, _) = if request.expandable {
            prefer_interior(&self.nodes, candidates.next()?, candidates)
        } else {
            candidates.find(|&(_, _, block)| !self.nodes[block].expandable)?
        };
        self.is_acceptable(key.bytes, request).then_some(place)
    }

    /// True if a block of `bytes`, which is large enough, may serve the request. A block too large to split serves only
    /// requests of nearly its size.
    #[inline]
    fn is_acceptable(&self, bytes: u64, request: &Request) -> bool {
        let limit = self.config.max_split_size_bytes;
        if request.bytes < limit {
            bytes < limit
        } else {
            bytes < request.bytes.saturating_add(self.config.max_non_split_rounding_bytes)
        }
    }

    /// True if the rest of the block becomes a block of its own.
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

/// Among expandable blocks, moves on while the next candidate has a smaller sum of its own bytes and the unmapped bytes
/// after it. A gap inside a segment is thus preferred to the end of a segment, even if the gap is larger.
fn prefer_interior(nodes: &Slab<Node>, first: Found, rest: impl Iterator<Item = Found>) -> Found {
    let reach = |index: u32| {
        let node = &nodes[index];
        let unmapped = node.next != NONE && !nodes[node.next].mapped;
        node.bytes + if unmapped { nodes[node.next].bytes } else { 0 }
    };
    let mut best = first;
    for found in rest {
        if !nodes[best.2].expandable || reach(found.2) >= reach(best.2) {
            break;
        }
        best = found;
    }
    best
}
