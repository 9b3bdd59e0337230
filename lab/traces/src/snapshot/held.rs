//! Holders of memory: at the end, at the peak, and after each entry.

use memcore::memory::BlockState;
use rustc_hash::FxHashMap;

use super::model::{Action, Snapshot, StackId, total};

/// Memory of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Stack that allocated it.
    pub stack: StackId,
    /// Requested bytes.
    pub bytes: u64,
    /// Number of allocations.
    pub allocations: u64,
}

/// Totals of a device at the end. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of segments.
    pub segments: usize,
    /// Bytes of segments.
    pub reserved: u64,
    /// Bytes of blocks that clients hold.
    pub allocated: u64,
    /// Bytes of blocks that clients hold, or whose free waits for a stream.
    pub active: u64,
    /// Bytes that clients requested, of active blocks.
    pub requested: u64,
    /// Bytes of free blocks.
    pub free: u64,
    /// Free bytes in partly used segments, which cannot be returned to the driver.
    pub free_split: u64,
    /// Bytes of the largest free block.
    pub largest_free: u64,
}

impl Totals {
    /// Share of free memory that is not in the largest free block, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free as f64 }
    }
}

/// The moment of a trace's peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Entry after which memory was at its peak; `None` for before the first.
    pub event: Option<usize>,
    /// Sum of the requested bytes.
    pub bytes: u64,
    /// Holders then, largest first.
    pub by_stack: Vec<Held>,
}

impl Snapshot {
    /// Returns the totals of a device at the end.
    pub fn totals(&self, device: usize) -> Totals {
        let mut totals = Totals::default();
        for segment in self.segments_of(device) {
            let (active, largest) = (segment.active_bytes(), segment.largest_free_bytes());
            totals.segments += 1;
            totals.reserved = totals.reserved.saturating_add(segment.bytes);
            totals.allocated = totals.allocated.saturating_add(segment.allocated_bytes());
            totals.active = totals.active.saturating_add(active);
            totals.requested = totals.requested.saturating_add(segment.requested_bytes());
            totals.free = totals.free.saturating_add(segment.bytes - active);
            let split = if active > 0 { segment.bytes - active } else { 0 };
            totals.free_split = totals.free_split.saturating_add(split);
            totals.largest_free = totals.largest_free.max(largest);
        }
        totals
    }

    /// Returns the holders of the allocated blocks, largest first. Blocks whose free waits for a stream have no holder.
    pub fn held(&self, device: usize) -> Vec<Held> {
        let blocks = self.segments_of(device).flat_map(|segment| &segment.blocks);
        let allocated = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
        by_stack(allocated.map(|block| (block.stack, block.requested_bytes)))
    }

    /// Returns the live bytes after each entry: its index, and the sum of the requested bytes. A free counts from its request, as the client freed
    /// the memory then.
    pub fn live_bytes(&self, device: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut live: FxHashMap<u64, u64> = FxHashMap::default();
        let mut sum = 0u64;
        for (address, bytes, _) in self.before(device) {
            live.insert(address, bytes);
            sum = sum.saturating_add(bytes);
        }
        self.trace(device).iter().enumerate().map(move |(at, event)| {
            match event.action {
                Action::Alloc => {
                    let replaced = live.insert(event.address, event.bytes).unwrap_or(0);
                    sum = sum.saturating_add(event.bytes).saturating_sub(replaced);
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    sum = sum.saturating_sub(live.remove(&event.address).unwrap_or(0));
                }
                _ => {}
            }
            (at, sum)
        })
    }

    /// Returns the moment at which most was live, and its holders.
    pub fn peak(&self, device: usize) -> Peak {
        let before = total(self.before(device).into_iter().map(|(_, bytes, _)| bytes));
        let mut peak = Peak { event: None, bytes: before, by_stack: Vec::new() };
        for (at, bytes) in self.live_bytes(device) {
            if bytes > peak.bytes {
                (peak.event, peak.bytes) = (Some(at), bytes);
            }
        }
        peak.by_stack =
            by_stack(self.live_after(device, peak.event).into_iter().map(|(_, _, stack, bytes)| (stack, bytes)));
        peak
    }

    /// Returns the allocations live after an entry (`None`: before the first), by address: address, the entry that made it, its stack, bytes.
    pub fn live_after(&self, device: usize, event: Option<usize>) -> Vec<(u64, Option<usize>, StackId, u64)> {
        // The block that lies at an address at the end may be a later one.
        let mut stacks = self.stacks_at_the_end(device);
        for entry in self.trace(device).iter().filter(|entry| entry.action == Action::Alloc) {
            stacks.remove(&entry.address);
        }
        let mut live: FxHashMap<u64, (Option<usize>, StackId, u64)> = FxHashMap::default();
        for (address, bytes, _) in self.before(device) {
            live.insert(address, (None, stacks.get(&address).copied().unwrap_or_default(), bytes));
        }
        for (at, entry) in self.trace(device).iter().enumerate().take(event.map_or(0, |event| event + 1)) {
            match entry.action {
                Action::Alloc => drop(live.insert(entry.address, (Some(at), entry.stack, entry.bytes))),
                Action::FreeRequested | Action::FreeCompleted => drop(live.remove(&entry.address)),
                _ => {}
            }
        }
        let mut live: Vec<_> =
            live.into_iter().map(|(address, (at, stack, bytes))| (address, at, stack, bytes)).collect();
        live.sort_unstable();
        live
    }

    /// Returns the stacks of the blocks at the end, by address.
    pub(crate) fn stacks_at_the_end(&self, device: usize) -> FxHashMap<u64, StackId> {
        let blocks = self.segments_of(device).flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state != BlockState::Inactive).map(|block| (block.address, block.stack)).collect()
    }
}

/// Sums by stack, largest first.
pub(super) fn by_stack(held: impl Iterator<Item = (StackId, u64)>) -> Vec<Held> {
    let mut sums: FxHashMap<StackId, Held> = FxHashMap::default();
    for (stack, bytes) in held {
        let sum = sums.entry(stack).or_insert(Held { stack, ..Held::default() });
        sum.bytes = sum.bytes.saturating_add(bytes);
        sum.allocations += 1;
    }
    let mut sums: Vec<Held> = sums.into_values().collect();
    sums.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then(a.stack.cmp(&b.stack)));
    sums
}
