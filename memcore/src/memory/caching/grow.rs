//! Asking the driver for more memory.

use super::block::{Node, Segment};
use super::config::TorchVersion;
use super::{Caching, Driver, Request};
use crate::error::{Error, Result};
use crate::memory::DriverEvent;

impl Caching {
    /// Returns a new block, in no pool; `None` if the limit or the driver refuses. `retry` marks the last attempt.
    pub(super) fn grow(&mut self, request: &Request, retry: bool, driver: Driver<'_>) -> Result<Option<u32>> {
        if retry {
            self.stats.num_alloc_retries += 1;
        }
        let bytes = request.segment_bytes;
        if self.allowed_bytes.is_some_and(|allowed| self.taken_bytes.saturating_add(bytes) > allowed) {
            return Ok(None);
        }
        if self.config.throw_on_oom && self.config.version >= TorchVersion::V2_15 {
            self.reject_ahead(request)?;
        }
        if request.expandable {
            return self.grow_expandable(request, driver);
        }
        self.new_segment(request, driver)
    }

    fn new_segment(&mut self, request: &Request, driver: Driver<'_>) -> Result<Option<u32>> {
        let &Request { segment_bytes: bytes, pool, stream, .. } = request;
        let id = match self.memory.alloc_segment(bytes) {
            Ok(id) => id,
            Err(error @ (Error::DeviceFull { .. } | Error::TooLarge { .. })) => {
                driver(DriverEvent::Refused { bytes });
                self.refusal = Some(error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let base = self.addresses.take(bytes).inspect_err(|_| self.memory.free_segment(id))?;
        let (small, owner) = (self.pools[pool as usize].small, self.pools[pool as usize].owner);
        self.private.reserve(&mut self.stats, owner, bytes);
        self.taken_bytes += bytes;
        self.stats.segment_taken(small, bytes);
        if bytes >= self.config.max_split_size_bytes {
            self.stats.oversize_segments.increase(1);
        }
        let segment = self.segments.insert(Segment { id, base, bytes, first: 0, page_bytes: 0 });
        let made = self.made();
        let index = self.nodes.insert(Node { made, ..Node::new(stream, bytes, pool, base, segment) });
        self.segments[segment].first = index;
        driver(DriverEvent::SegmentAlloc { address: base, bytes, stream, segment: id });
        Ok(Some(index))
    }

    /// With `throw_on_oom`, refuses a request that would exceed the configured fraction: at once, without giving
    /// anything back.
    fn reject_ahead(&mut self, request: &Request) -> Result<()> {
        let Some(total) = self.total_bytes else { return Ok(()) };
        let limit = (self.config.per_process_memory_fraction * total as f64) as u64;
        if self.taken_bytes.saturating_add(request.segment_bytes) <= limit {
            return Ok(());
        }
        self.stats.num_oom_rejections += 1;
        self.note_failure(request, 0, true);
        Err(Error::DeviceFull { requested_bytes: request.requested_bytes, free_bytes: None })
    }
}
