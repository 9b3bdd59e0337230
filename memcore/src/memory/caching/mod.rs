//! PyTorch's caching allocator, exact to the byte.
//!
//! The model. Each point is checked against recordings of the real allocator:
//!
//! - **Sizes.** A request is rounded up to a multiple of 512 bytes. Up to 1 MiB it belongs to the *small* pool, above
//!   that to the *large* one. The two never lend to each other, and no stream uses another stream's blocks.
//! - **Search.** The smallest free block that is large enough serves, at the lowest address among equals.
//! - **Growth.** The driver is asked only if no block fits: for 2 MiB (small), for 20 MiB (under 10 MiB), else for the
//!   request rounded up to 2 MiB.
//! - **Split.** The rest of a block becomes a free block of its own if it is at least 512 bytes (small) or more than 1
//!   MiB (large); otherwise the client gets it too.
//! - **Free.** A freed block merges with its free neighbours in its segment and stays in the pool. No free gives
//!   anything back to the driver.
//! - **Retry.** If the driver refuses, wholly free segments are given back and it is asked once more; the pools are not
//!   searched again. Only after that is the request out of memory.
//!
//! Everything beyond this is an option that is off by default, one file each: other block sizes (`sizes.rs`), blocks
//! too large to split and the slack in reusing them (`search.rs`, `split.rs`), collection of old segments (`gc.rs`),
//! segments that grow (`expandable.rs`), work of other streams (`waits.rs`), private pools (`scopes.rs`). The settings
//! and their syntax are in `config/`.
//!
//! The invariants (tiling, no two free neighbours, counters equal to sums) are listed in `invariants.rs`; tests check
//! them after every step.

mod block;
mod chunk;
mod class;
mod config;
mod events;
mod expandable;
mod free;
mod free_list;
mod gc;
mod grow;
mod invariants;
mod oom;
mod pool;
mod private;
mod release;
mod restore;
mod restore_expandable;
mod scopes;
mod search;
mod sizes;
mod snapshot;
mod split;
mod summary;
mod waits;

use std::num::NonZeroU64;
use std::sync::Arc;

use block::{LARGE, Node, PoolIndex, SMALL, Segment};
pub use config::{AllocatorConfig, TorchVersion};
use events::Events;
use pool::Pool;
pub use private::PoolId;
use private::PrivatePools;
pub use sizes::BLOCK_BYTES;
pub use summary::memory_summary;

use super::address::AddressSpace;
use super::allocator::{AllocationFailure, Allocator, Block, BlockId, DriverEvent, allowed_bytes};
use super::slab::Slab;
use super::snapshot::Snapshot;
use super::stats::Stats;
use super::stream::Stream;
use crate::backend::{DeviceMemory, Region};
use crate::error::{Error, Result};

type Driver<'a> = &'a mut dyn FnMut(DriverEvent);

/// PyTorch's allocator; see the [module](self).
pub struct Caching {
    memory: Arc<dyn DeviceMemory>,
    config: AllocatorConfig,
    /// Total memory that the driver reported at construction.
    total_bytes: Option<u64>,
    addresses: AddressSpace,
    /// Number of blocks created so far; counted only if it decides an order.
    blocks_made: u64,
    nodes: Slab<Node>,
    segments: Slab<Segment>,
    pools: Vec<Pool>,
    private: PrivatePools,
    events: Events,
    stats: Stats,
    /// Bytes taken from the driver: segments, and mapped pages.
    taken_bytes: u64,
    /// Limit of `taken_bytes`.
    allowed_bytes: Option<u64>,
    warned_expandable: bool,
    failure: Option<AllocationFailure>,
    /// The driver's last refusal during the allocation in progress.
    refusal: Option<Error>,
}

/// One request in progress.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Bytes that the client asked for.
    requested_bytes: u64,
    bytes: u64,
    /// Size of the segment to ask the driver for.
    segment_bytes: u64,
    pool: PoolIndex,
    stream: Stream,
    /// True if it may use and grow expandable segments.
    expandable: bool,
}

impl Caching {
    /// Creates an allocator on this device with these settings.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the settings limit the fraction of a device that does not report how much memory it has.
    pub fn new(memory: Arc<dyn DeviceMemory>, config: AllocatorConfig) -> Result<Self> {
        let fraction = config.per_process_memory_fraction;
        let mut caching = Self::unlimited(memory, config);
        caching.set_memory_fraction(fraction)?;
        Ok(caching)
    }

    /// Creates an allocator with PyTorch's default settings.
    pub fn with_defaults(memory: Arc<dyn DeviceMemory>) -> Self {
        Self::unlimited(memory, AllocatorConfig::default())
    }

    fn unlimited(memory: Arc<dyn DeviceMemory>, config: AllocatorConfig) -> Self {
        let stats = Stats {
            max_split_size_bytes: (config.max_split_size_bytes != u64::MAX).then_some(config.max_split_size_bytes),
            newer_names: config.version >= TorchVersion::V2_15,
            ..Stats::default()
        };
        Self {
            total_bytes: memory.memory_info().map(|info| info.total_bytes),
            memory,
            config,
            addresses: AddressSpace::new(),
            blocks_made: 0,
            nodes: Slab::new(),
            segments: Slab::new(),
            pools: vec![Pool::new(false, None), Pool::new(true, None)],
            private: PrivatePools::default(),
            events: Events::default(),
            stats,
            taken_bytes: 0,
            allowed_bytes: None,
            warned_expandable: false,
            failure: None,
            refusal: None,
        }
    }

    /// The current settings.
    pub fn config(&self) -> &AllocatorConfig {
        &self.config
    }

    /// Changes settings while memory is in use, as `torch._C._accelerator_setAllocatorSettings` does. A changed memory
    /// fraction applies to allocators created later: this one keeps its limit.
    ///
    /// # Errors
    /// Errors of [`AllocatorConfig::update`]; settings before the faulty one are then in force.
    pub fn update_config(&mut self, settings: &str) -> Result<()> {
        self.config.update(settings)
    }

    /// The most that may be taken from the driver, if a fraction below 1 was set.
    pub fn allowed_bytes(&self) -> Option<u64> {
        self.allowed_bytes
    }

    fn request(&mut self, requested_bytes: u64, stream: Stream, driver: Driver<'_>) -> Result<Request> {
        if requested_bytes >= sizes::TENSOR_LIMIT_BYTES {
            let limit_bytes = self.memory.limits().max_segment_bytes;
            self.failure = Some(AllocationFailure {
                requested_bytes,
                block_bytes: requested_bytes,
                segment_bytes: requested_bytes,
                ..AllocationFailure::default()
            });
            return Err(Error::TooLarge { requested_bytes, limit_bytes });
        }
        let bytes = sizes::round(requested_bytes, &self.config.roundup_power2_divisions);
        let expandable = self.config.expandable_segments && self.can_expand(driver);
        Ok(self.sized(requested_bytes, bytes, stream, expandable))
    }

    /// Makes a request from its rounded size: adds the pool and the segment size that belong to it.
    #[inline]
    fn sized(&self, requested_bytes: u64, bytes: u64, stream: Stream, expandable: bool) -> Request {
        let small = bytes <= sizes::SMALL_BYTES;
        let pool = self.private.scope(small).unwrap_or(if small { SMALL } else { LARGE });
        let segment_bytes = sizes::segment(bytes, self.config.large_segment_bytes);
        Request { requested_bytes, bytes, segment_bytes, pool, stream, expandable }
    }

    /// The number of a new block, from 1 on, if it decides which of two free blocks of the same size comes first. It
    /// does in PyTorch 2.12 alone, which numbered every block at its creation (pytorch#178362; 2.13 reverted that,
    /// pytorch#182929).
    #[inline]
    fn made(&mut self) -> Option<NonZeroU64> {
        if self.config.version != TorchVersion::V2_12 {
            return None;
        }
        self.blocks_made += 1;
        NonZeroU64::new(self.blocks_made)
    }

    /// True if the device has virtual memory. If not, reports that once.
    fn can_expand(&mut self, driver: Driver<'_>) -> bool {
        let can = self.memory.virtual_memory().is_some();
        if !can && !std::mem::replace(&mut self.warned_expandable, true) {
            driver(DriverEvent::ExpandableUnsupported);
        }
        can
    }

    /// True if old segments are collected: only with a threshold and a limit.
    fn collects(&self) -> bool {
        self.allowed_bytes.is_some() && self.config.garbage_collection_threshold > 0.0
    }

    /// Obtains a new block for a request that found none in its pool. Tries, in this order: collection of old segments,
    /// the driver, pools that lend, the driver after giving back blocks too large to split, the driver after giving
    /// back everything. The pools are not searched again in between.
    fn obtain(&mut self, request: &mut Request, driver: Driver<'_>) -> Result<u32> {
        let given_back = self.stats.reserved_bytes.all.freed();
        self.refusal = None;
        if self.collects() {
            self.collect_garbage(driver);
        }
        if let Some(found) = self.grow(request, false, driver)? {
            return Ok(found);
        }
        if let Some(found) = self.borrow_from_lender(request) {
            return Ok(found);
        }
        if self.release_oversize(request, driver)
            && let Some(found) = self.grow(request, false, driver)?
        {
            return Ok(found);
        }
        if !self.captures() {
            self.release_cached(None, driver);
            if let Some(found) = self.grow(request, true, driver)? {
                return Ok(found);
            }
        }
        let released_bytes = self.stats.reserved_bytes.all.freed() - given_back;
        Err(self.out_of_memory(request, released_bytes))
    }
}

/// Private pools of graphs have ids of this form.
fn replayed_pool(pool: u16) -> PoolId {
    PoolId((u64::from(pool), 0))
}

impl Allocator for Caching {
    fn name(&self) -> &'static str {
        "caching"
    }

    fn allocate(&mut self, bytes: u64, stream: Stream, driver: Driver<'_>) -> Result<Block> {
        if !self.captures() {
            self.process_events();
        }
        let mut request = self.request(bytes, stream, driver)?;
        let found = match self.search(&request) {
            Some(found) => found,
            None => self.obtain(&mut request, driver)?,
        };
        let split = self.should_split(found, &request);
        let index = self.serve(found, &request, split);
        let node = &self.nodes[index];
        let segment = &self.segments[node.segment];
        let region = Region { segment: segment.id, offset: node.address - segment.base, len: bytes };
        Ok(Block { id: BlockId(index), region, address: node.address, requested_bytes: bytes, bytes: node.bytes })
    }

    fn free(&mut self, id: BlockId, _driver: Driver<'_>) {
        self.free_requested(id.0);
    }

    fn record_stream(&mut self, id: BlockId, stream: Stream) {
        self.record(id.0, stream);
    }

    fn hold_events(&mut self) {
        self.events.hold();
    }

    fn complete_events(&mut self) {
        self.events.complete();
    }

    fn enter_pool(&mut self, pool: u16) {
        let entered = self.begin_allocate_to_pool(replayed_pool(pool));
        debug_assert!(entered.is_ok(), "a replay is in one pool at a time");
    }

    fn leave_pool(&mut self, pool: u16) {
        let left = self.end_allocate_to_pool(replayed_pool(pool));
        debug_assert!(left.is_ok(), "a replay leaves the pool that it entered");
    }

    fn empty_cache(&mut self, driver: Driver<'_>) -> u64 {
        let before = self.stats.reserved_bytes.all.freed();
        self.release_cached(None, driver);
        self.stats.reserved_bytes.all.freed() - before
    }

    fn set_memory_fraction(&mut self, fraction: f64) -> Result<()> {
        self.allowed_bytes = allowed_bytes(fraction, self.total_bytes)?;
        Ok(())
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn snapshot(&self) -> Snapshot {
        self.take_snapshot()
    }

    fn layout(&self) -> u64 {
        self.hash_layout()
    }

    fn last_failure(&self) -> Option<&AllocationFailure> {
        self.failure.as_ref()
    }
}

impl Drop for Caching {
    /// Gives all memory back: blocks do not outlive their allocator.
    fn drop(&mut self) {
        let memory = self.memory.clone();
        let mut mapped: Vec<(u32, u64, u64)> = Vec::new();
        for (_, node) in self.nodes.iter() {
            if node.expandable && node.mapped {
                mapped.push((node.segment, node.address, node.bytes));
            }
        }
        mapped.sort_unstable();
        if let Some(virtual_memory) = memory.virtual_memory() {
            // A page may hold parts of several blocks, so neighbours are unmapped as one run.
            let mut runs: Vec<(u32, u64, u64)> = Vec::new();
            for (segment, address, bytes) in mapped {
                match runs.last_mut() {
                    Some(run) if run.0 == segment && run.1 + run.2 == address => run.2 += bytes,
                    _ => runs.push((segment, address, bytes)),
                }
            }
            for (segment, address, bytes) in runs {
                let segment = &self.segments[segment];
                virtual_memory.unmap(segment.id, address - segment.base, bytes);
            }
        }
        for (_, segment) in self.segments.iter() {
            match memory.virtual_memory() {
                Some(virtual_memory) if segment.page_bytes > 0 => virtual_memory.release(segment.id),
                _ => memory.free_segment(segment.id),
            }
        }
    }
}
