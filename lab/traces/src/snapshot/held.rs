//! Who holds what: at the end, at the peak, and what is left over.

use std::collections::HashMap;

use memcore::memory::BlockState;

use super::model::{Action, Snapshot, StackId, total};

/// What one stack holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Who asked for it.
    pub stack: StackId,
    /// Bytes asked for.
    pub bytes: u64,
    /// In how many allocations.
    pub allocations: u64,
}

/// A device's memory as it is at the end. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments.
    pub segments: usize,
    /// Bytes of segments.
    pub reserved: u64,
    /// Blocks that clients hold.
    pub allocated: u64,
    /// Blocks that clients hold, and those whose free waits.
    pub active: u64,
    /// What clients asked for, of active blocks.
    pub requested: u64,
    /// Free blocks.
    pub free: u64,
    /// Of these, in segments that are partly in use: what cannot be given back.
    pub free_split: u64,
    /// The largest free block.
    pub largest_free: u64,
}

impl Totals {
    /// The share of free memory that is not in the largest free block, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free as f64 }
    }
}

/// The moment at which a trace held most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The entry after which it did; `None`: before the first.
    pub event: Option<usize>,
    /// The sum of what clients had asked for.
    pub bytes: u64,
    /// Who held it, most first.
    pub by_stack: Vec<Held>,
}

impl Snapshot {
    /// A device's memory in figures.
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

    /// Who holds the allocated blocks, most first. Blocks whose free waits for a stream are held by nobody.
    pub fn held(&self, device: usize) -> Vec<Held> {
        let blocks = self.segments_of(device).flat_map(|segment| &segment.blocks);
        let allocated = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
        by_stack(allocated.map(|block| (block.stack, block.requested_bytes)))
    }

    /// What is live after each entry: its index and the sum of what clients had asked for. Frees count when they are
    /// requested, as the clients freed them then.
    pub fn live_bytes(&self, device: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut live: HashMap<u64, u64> = HashMap::new();
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

    /// The moment at which most was live, and who held it.
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

    /// What is live after an entry (`None`: before the first): address, the entry that made it, its stack, bytes. By
    /// address.
    pub fn live_after(&self, device: usize, event: Option<usize>) -> Vec<(u64, Option<usize>, StackId, u64)> {
        let stacks = self.stacks_at_the_end(device);
        let mut live: HashMap<u64, (Option<usize>, StackId, u64)> = HashMap::new();
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

    /// The stacks of blocks that are there at the end, by address.
    pub(crate) fn stacks_at_the_end(&self, device: usize) -> HashMap<u64, StackId> {
        let blocks = self.segments_of(device).flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state != BlockState::Inactive).map(|block| (block.address, block.stack)).collect()
    }
}

/// Sums by stack, most first.
pub(super) fn by_stack(held: impl Iterator<Item = (StackId, u64)>) -> Vec<Held> {
    let mut sums: HashMap<StackId, Held> = HashMap::new();
    for (stack, bytes) in held {
        let sum = sums.entry(stack).or_insert(Held { stack, ..Held::default() });
        sum.bytes = sum.bytes.saturating_add(bytes);
        sum.allocations += 1;
    }
    let mut sums: Vec<Held> = sums.into_values().collect();
    sums.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then(a.stack.cmp(&b.stack)));
    sums
}
