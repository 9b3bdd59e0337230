//! An allocator that follows a plan, and so assumes that it knows the future.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::plan::{Lifetime, Plan};
use crate::backend::{DeviceMemory, Region, SegmentId};
use crate::error::{Error, Result};
use crate::memory::slab::Slab;
use crate::memory::{
    AllocationFailure, Allocator, Block, BlockId, BlockSnapshot, BlockState, Direct, DriverEvent, SegmentSnapshot,
    Snapshot, Stats, Stream,
};

/// Address of the plan's segment, above every address that the allocator of unforeseen requests gives.
const BASE: u64 = 1 << 63;

/// Gives the k-th request the k-th place of a [`Plan`], in one segment that is taken at construction.
///
/// A program that deviates from its recording is still served correctly: a request that is larger than planned, is for
/// another stream, comes after the end of the plan, or whose place is still in use, gets a segment of its own and is
/// counted in [`unforeseen`](Self::unforeseen). All counts are in the large pool.
pub struct Planned {
    memory: Arc<dyn DeviceMemory>,
    plan: Plan,
    /// The planned size of each request, rounded.
    sizes: Vec<u64>,
    segment: Option<SegmentId>,
    next: usize,
    /// Planned blocks in use, by offset.
    live: BTreeMap<u64, u32>,
    blocks: Slab<Held>,
    departed: Direct,
    unforeseen: u64,
    stats: Stats,
    failure: Option<AllocationFailure>,
}

#[derive(Clone, Copy, Debug)]
enum Held {
    Planned { offset: u64, bytes: u64, requested_bytes: u64 },
    Departed { block: Block },
}

impl Planned {
    /// Takes the plan's segment and reports it to the driver callback.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the plan is wrong for these lifetimes; the driver's refusal of the segment.
    pub fn new(
        memory: Arc<dyn DeviceMemory>,
        plan: Plan,
        lifetimes: &[Lifetime],
        driver: &mut dyn FnMut(DriverEvent),
    ) -> Result<Self> {
        if let Err((a, b)) = plan.check(lifetimes) {
            return Err(Error::invalid("memory plan", format!("allocations {a} and {b} collide or lie outside")));
        }
        let mut stats = Stats::default();
        let bytes = plan.bytes;
        let segment = if bytes > 0 {
            let segment = memory.alloc_segment(bytes).inspect_err(|_| driver(DriverEvent::Refused { bytes }))?;
            stats.segment_taken(false, bytes);
            driver(DriverEvent::SegmentAlloc { address: BASE, bytes, stream: Stream::DEFAULT, segment });
            Some(segment)
        } else {
            None
        };
        Ok(Self {
            departed: Direct::new(memory.clone()),
            memory,
            plan,
            sizes: lifetimes.iter().map(Lifetime::rounded_bytes).collect(),
            segment,
            next: 0,
            live: BTreeMap::new(),
            blocks: Slab::new(),
            unforeseen: 0,
            stats,
            failure: None,
        })
    }

    /// Number of requests that the plan did not foresee.
    pub fn unforeseen(&self) -> u64 {
        self.unforeseen
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the place that the plan has for the next request, if the request fits and the place is free.
    fn place(&self, bytes: u64, stream: Stream) -> Option<(SegmentId, u64, u64)> {
        let (&offset, &size) = (self.plan.offsets.get(self.next)?, self.sizes.get(self.next)?);
        let below = self.live.range(..offset + size).next_back();
        let clear = below.is_none_or(|(&start, &index)| match self.blocks.get(index) {
            Some(Held::Planned { bytes, .. }) => start + bytes <= offset,
            _ => true,
        });
        (bytes <= size && stream == Stream::DEFAULT && clear).then_some((self.segment?, offset, size))
    }

    /// The plan's segment: the blocks in use, and the gaps between them.
    fn planned_segment(&self) -> SegmentSnapshot {
        let (mut blocks, mut end) = (Vec::new(), 0);
        let mut push = |from: u64, to: u64, requested_bytes, state| {
            if to > from {
                blocks.push(BlockSnapshot { address: BASE + from, bytes: to - from, requested_bytes, state });
            }
        };
        for (&offset, &index) in &self.live {
            if let Some(&Held::Planned { bytes, requested_bytes, .. }) = self.blocks.get(index) {
                push(end, offset, 0, BlockState::Inactive);
                push(offset, offset + bytes, requested_bytes, BlockState::ActiveAllocated);
                end = offset + bytes;
            }
        }
        push(end, self.plan.bytes, 0, BlockState::Inactive);
        SegmentSnapshot {
            address: BASE,
            total_bytes: self.plan.bytes,
            stream: Stream::DEFAULT,
            small: false,
            expandable: false,
            pool_id: (0, 0),
            blocks,
        }
    }

    fn depart(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Block> {
        match self.departed.allocate(bytes, stream, driver) {
            Ok(block) => {
                self.unforeseen += 1;
                self.stats.segment_taken(false, block.bytes);
                self.stats.served(false, block.bytes, bytes);
                let index = self.blocks.insert(Held::Departed { block });
                Ok(Block { id: BlockId(index), ..block })
            }
            Err(error) => {
                if error.is_out_of_memory() {
                    self.stats.num_ooms += 1;
                    self.failure = self.departed.last_failure().copied();
                }
                Err(error)
            }
        }
    }
}

impl Allocator for Planned {
    fn name(&self) -> &'static str {
        "planned"
    }

    fn allocate(&mut self, bytes: u64, stream: Stream, driver: &mut dyn FnMut(DriverEvent)) -> Result<Block> {
        let place = self.place(bytes, stream);
        self.next += 1;
        let Some((segment, offset, size)) = place else { return self.depart(bytes, stream, driver) };
        let index = self.blocks.insert(Held::Planned { offset, bytes: size, requested_bytes: bytes });
        self.live.insert(offset, index);
        self.stats.served(false, size, bytes);
        let region = Region { segment, offset, len: bytes };
        Ok(Block { id: BlockId(index), region, address: BASE + offset, requested_bytes: bytes, bytes: size })
    }

    fn free(&mut self, id: BlockId, driver: &mut dyn FnMut(DriverEvent)) {
        let Some(held) = self.blocks.remove(id.0) else {
            debug_assert!(false, "{id:?} is not live");
            return;
        };
        let (bytes, requested_bytes) = match held {
            Held::Planned { offset, bytes, requested_bytes } => {
                self.live.remove(&offset);
                (bytes, requested_bytes)
            }
            Held::Departed { block } => (block.bytes, block.requested_bytes),
        };
        self.stats.free_requested(false, bytes);
        self.stats.free_completed(false, bytes, requested_bytes);
        if let Held::Departed { block } = held {
            self.departed.free(block.id, driver);
            self.stats.segment_given_back(false, block.bytes);
        }
    }

    /// Gives the plan's segment back if it has no block in use. Later requests then count as unforeseen.
    fn empty_cache(&mut self, driver: &mut dyn FnMut(DriverEvent)) -> u64 {
        if !self.live.is_empty() {
            return 0;
        }
        let Some(segment) = self.segment.take() else { return 0 };
        let bytes = self.plan.bytes;
        self.memory.free_segment(segment);
        self.stats.segment_given_back(false, bytes);
        driver(DriverEvent::SegmentFree { address: BASE, bytes, stream: Stream::DEFAULT, segment });
        bytes
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.departed.snapshot();
        if self.segment.is_some() {
            snapshot.segments.push(self.planned_segment());
        }
        snapshot
    }

    fn last_failure(&self) -> Option<&AllocationFailure> {
        self.failure.as_ref()
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        if let Some(segment) = self.segment {
            self.memory.free_segment(segment);
        }
    }
}
