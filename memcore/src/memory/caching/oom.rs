//! The end of a request that nothing could serve.

use super::{Caching, Request, sizes};
use crate::error::Error;
use crate::memory::AllocationFailure;

impl Caching {
    /// Counts and describes the failure; everything that could be given back was.
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
        private.flat_map(|pool| pool.free.keys()).map(|key| key.bytes).sum()
    }

    /// The largest request that would be served now, without giving anything back: from a free block, or from the
    /// driver. Exact without the options that round or refuse blocks by size; a lower bound with them.
    fn largest_fit(&self, request: &Request) -> u64 {
        let owner = self.pools[request.pool as usize].owner;
        let cached = self.pools.iter().filter(|pool| pool.owner == owner).filter_map(|pool| {
            let own = pool.free.iter().filter(|(key, index)| {
                key.stream == request.stream && (request.expandable || !self.nodes[**index].expandable)
            });
            let largest = own.map(|(key, _)| key.bytes).max()?;
            Some(if pool.small { largest.min(sizes::SMALL_BYTES) } else { largest })
        });
        let cached = cached.filter(|&bytes| self.fits_cached(bytes, request)).max().unwrap_or(0);
        cached.max(self.largest_from_driver(request))
    }

    /// Whether the search would serve a request of this size, as the rounding makes it.
    fn fits_cached(&self, bytes: u64, request: &Request) -> bool {
        let rounded = sizes::round(bytes, &self.config.roundup_power2_divisions);
        rounded == bytes
            && !(request.bytes < self.config.max_split_size_bytes && bytes >= self.config.max_split_size_bytes)
    }

    fn largest_from_driver(&self, request: &Request) -> u64 {
        let limits = self.memory.limits();
        let free = self.memory.memory_info().map_or(0, |info| info.free_bytes).min(limits.max_segment_bytes);
        let allowed = self.allowed_bytes.map_or(u64::MAX, |allowed| allowed.saturating_sub(self.taken_bytes));
        let free = free.min(allowed);
        if request.expandable {
            let page = self.config.large_segment_bytes;
            let tail = self.largest_tail(request);
            return match free / page * page {
                0 => 0,
                pages => pages + tail,
            };
        }
        if free >= sizes::MADE_TO_MEASURE_BYTES {
            free / sizes::ROUND_LARGE_BYTES * sizes::ROUND_LARGE_BYTES
        } else if free >= sizes::SMALL_SEGMENT_BYTES {
            sizes::SMALL_BYTES
        } else {
            0
        }
    }

    /// The largest free block that could grow: the one before an unmapped range.
    fn largest_tail(&self, request: &Request) -> u64 {
        let large = super::block::LARGE;
        let ranges = &self.pools[large as usize].unmapped;
        let before = ranges.range((request.stream, 0)..=(request.stream, u64::MAX)).filter_map(|(_, &range)| {
            let prev = self.nodes.get(self.nodes[range].prev)?;
            prev.is_free().then_some(prev.bytes)
        });
        before.max().unwrap_or(0)
    }
}
