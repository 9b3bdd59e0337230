//! Failure of a request that nothing could serve.

use super::{Caching, Request, sizes};
use crate::error::Error;
use crate::memory::AllocationFailure;

impl Caching {
    /// Counts and describes the failure. Everything that could be given back was given back before.
    pub(super) fn out_of_memory(&mut self, request: &Request, released_bytes: u64) -> Error {
        self.stats.num_ooms += 1;
        self.note_failure(request, released_bytes, false);
        let info = self.memory.memory_info();
        let full = Error::DeviceFull {
            requested_bytes: request.requested_bytes,
            free_bytes: info.map(|info| info.free_bytes),
        };
        self.refusal.take().filter(|error| matches!(error, Error::TooLarge { .. })).unwrap_or(full)
    }

    pub(super) fn note_failure(&mut self, request: &Request, released_bytes: u64, preemptive: bool) {
        self.failure = Some(AllocationFailure {
            requested_bytes: request.requested_bytes,
            block_bytes: request.bytes,
            segment_bytes: request.segment_bytes,
            allowed_bytes: self.allowed_bytes,
            released_bytes,
            private_cached_bytes: self.private_cached_bytes(),
            largest_fit_bytes: self.largest_fit(request),
            preemptive,
        });
    }

    fn private_cached_bytes(&self) -> u64 {
        let private = self.pools.iter().filter(|pool| pool.owner.is_some());
        private.flat_map(|pool| pool.free.iter()).map(|(key, _)| key.bytes).sum()
    }

    /// The largest request of the stream that would be served now without giving anything back. Candidates are the
    /// sizes of free blocks and of the driver's room; each is tried against the current state.
    fn largest_fit(&self, request: &Request) -> u64 {
        let mut sizes: Vec<u64> = Vec::new();
        let mut most = 0;
        for pool in &self.pools {
            let own = pool.free.iter().filter(|(key, _)| key.stream == request.stream).map(|(key, _)| key.bytes);
            most = own.clone().max().unwrap_or(0).max(most);
            sizes.extend(own.flat_map(|bytes| [bytes, bytes.min(sizes::SMALL_BYTES)]));
        }
        let room = self.room_bytes();
        sizes.extend([room / sizes::ROUND_LARGE_BYTES * sizes::ROUND_LARGE_BYTES, sizes::SMALL_BYTES]);
        sizes.push(sizes::MIN_LARGE_ALLOC - sizes::BLOCK_BYTES);
        let divisions = &self.config.roundup_power2_divisions;
        let tried = sizes.into_iter().map(|bytes| last_below(bytes, |n| sizes::round(n, divisions) <= bytes));
        let found = tried.filter(|&bytes| bytes > 0 && self.fits(bytes, request)).max().unwrap_or(0);
        if !request.expandable {
            return found;
        }
        // A free block at the end of an expandable segment can grow by its unmapped pages: no list of sizes contains
        // that sum.
        let limit = most.saturating_add(room).min(sizes::TENSOR_LIMIT_BYTES - 1);
        let grown = last_below(limit, |bytes| self.fits(bytes, request));
        if grown > 0 && self.fits(grown, request) { found.max(grown) } else { found }
    }

    /// Bytes that the driver and this allocator's limit still allow.
    fn room_bytes(&self) -> u64 {
        let most = self.memory.limits().max_segment_bytes;
        let free = self.memory.memory_info().map_or(most, |info| info.free_bytes).min(most);
        let allowed = self.allowed_bytes.map_or(u64::MAX, |allowed| allowed.saturating_sub(self.taken_bytes));
        free.min(allowed)
    }

    /// True if a request of this size would be served at once.
    fn fits(&self, requested_bytes: u64, like: &Request) -> bool {
        let bytes = sizes::round(requested_bytes, &self.config.roundup_power2_divisions);
        let request = self.sized(requested_bytes, bytes, like.stream, like.expandable);
        if self.best_fit(&request).is_some() {
            return true;
        }
        let allowed = self.allowed_bytes.unwrap_or(u64::MAX);
        if self.taken_bytes.saturating_add(request.segment_bytes) > allowed {
            return false;
        }
        let wanted = if request.expandable { self.pages_wanted(&request) } else { request.segment_bytes };
        let most = self.memory.limits().max_segment_bytes;
        wanted <= self.memory.memory_info().map_or(most, |info| info.free_bytes).min(most)
    }
}

/// The largest number up to `limit` for which the test holds, if it holds for all smaller ones; 0 if it holds for none.
fn last_below(limit: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, limit);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
