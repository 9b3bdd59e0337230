//! The policy without a cache: every request is a segment of its own.

use std::sync::Arc;

use super::address::AddressSpace;
use super::allocator::{AllocationFailure, Allocator, Block, BlockId, DriverEvent};
use super::snapshot::{BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};
use super::stats::Stats;
use super::stream::Stream;
use crate::backend::{DeviceMemory, Region, SegmentId};
use crate::error::{Error, Result};

/// Asks the driver for every request and gives every block back at once, as `PYTORCH_NO_CUDA_MEMORY_CACHING=1` does.
/// Reserved always equals allocated. This is the baseline that shows the cost and the benefit of a cache.
///
/// A request is rounded up to the device's alignment. All counts are in the large pool.
pub struct Direct {
    memory: Arc<dyn DeviceMemory>,
    addresses: AddressSpace,
    blocks: Vec<Option<Held>>,
    vacant: Vec<u32>,
    stats: Stats,
    failure: Option<AllocationFailure>,
}

#[derive(Clone, Copy)]
struct Held {
    segment: SegmentId,
    address: u64,
    requested_bytes: u64,
    bytes: u64,
    stream: Stream,
}

impl Direct {
    /// Creates the allocator on this device.
    pub fn new(memory: Arc<dyn DeviceMemory>) -> Self {
        let addresses = AddressSpace::new();
        Self { memory, addresses, blocks: Vec::new(), vacant: Vec::new(), stats: Stats::default(), failure: None }
    }

    fn fail(&mut self, requested_bytes: u64, bytes: u64) {
        self.stats.num_ooms += 1;
        let limit = self.memory.limits().max_segment_bytes;
        let free = self.memory.memory_info().map_or(0, |info| info.free_bytes);
        self.failure = Some(AllocationFailure {
            requested_bytes,
            block_bytes: bytes,
            segment_bytes: bytes,
            largest_fit_bytes: free.min(limit) / self.memory.limits().alignment * self.memory.limits().alignment,
            ..AllocationFailure::default()
        });
    }
}

impl Allocator for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn allocate(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Block> {
        let limits = self.memory.limits();
        let too_large = Error::TooLarge { requested_bytes: bytes, limit_bytes: limits.max_segment_bytes };
        let size = bytes.checked_next_multiple_of(limits.alignment).ok_or(too_large)?;
        let segment = match self.memory.alloc_segment(size) {
            Ok(segment) => segment,
            Err(error) => {
                if error.is_out_of_memory() {
                    driver(DriverEvent::Refused { bytes: size });
                    self.fail(bytes, size);
                }
                return Err(error);
            }
        };
        let address = self.addresses.take(size).inspect_err(|_| self.memory.free_segment(segment))?;
        driver(DriverEvent::SegmentAlloc { address, bytes: size, stream, segment });
        self.stats.segment_taken(false, size);
        self.stats.served(false, size, bytes);
        let held = Some(Held { segment, address, requested_bytes: bytes, bytes: size, stream });
        let index = match self.vacant.pop() {
            Some(index) => {
                self.blocks[index as usize] = held;
                index
            }
            None => {
                self.blocks.push(held);
                (self.blocks.len() - 1) as u32
            }
        };
        let region = Region { segment, offset: 0, len: bytes };
        Ok(Block { id: BlockId(index), region, address, requested_bytes: bytes, bytes: size })
    }

    fn free(&mut self, id: BlockId, driver: &mut dyn FnMut(DriverEvent)) {
        let Some(held) = self.blocks.get_mut(id.0 as usize).and_then(Option::take) else {
            debug_assert!(false, "{id:?} is not live");
            return;
        };
        self.vacant.push(id.0);
        self.stats.free_requested(false, held.bytes);
        self.stats.free_completed(false, held.bytes, held.requested_bytes);
        self.memory.free_segment(held.segment);
        self.stats.segment_given_back(false, held.bytes);
        let Held { segment, address, bytes, stream, .. } = held;
        driver(DriverEvent::SegmentFree { address, bytes, stream, segment });
    }

    fn empty_cache(&mut self, _driver: &mut dyn FnMut(DriverEvent)) -> u64 {
        0
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn snapshot(&self) -> Snapshot {
        let segment = |held: &Held| SegmentSnapshot {
            address: held.address,
            total_bytes: held.bytes,
            stream: held.stream,
            small: false,
            expandable: false,
            pool_id: (0, 0),
            blocks: vec![BlockSnapshot {
                address: held.address,
                bytes: held.bytes,
                requested_bytes: held.requested_bytes,
                state: BlockState::ActiveAllocated,
            }],
        };
        let mut segments: Vec<_> = self.blocks.iter().flatten().map(segment).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        Snapshot { segments }
    }

    fn last_failure(&self) -> Option<&AllocationFailure> {
        self.failure.as_ref()
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.blocks.iter().flatten().for_each(|held| self.memory.free_segment(held.segment));
    }
}
