//! Lifetimes of the allocations of a trace.

use rustc_hash::FxHashMap;

use crate::snapshot::{Action, Snapshot, StackId};

/// Lifetime of an allocation, in entries of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Entry that made it; `None` if it existed before the first.
    pub made: Option<usize>,
    /// Entry that freed it; `None` if it lives at the end.
    pub freed: Option<usize>,
    /// Address.
    pub address: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Stack that allocated it.
    pub stack: StackId,
}

impl Life {
    /// True if it lives after an entry (`None`: before the first).
    pub fn lives_after(&self, entry: Option<usize>) -> bool {
        let made = self.made.is_none_or(|made| entry.is_some_and(|entry| made <= entry));
        let freed = self.freed.is_some_and(|freed| entry.is_some_and(|entry| freed <= entry));
        made && !freed
    }
}

/// Returns all allocations of a device, in order.
pub fn lives(snapshot: &Snapshot, device: usize) -> Vec<Life> {
    let before = snapshot.live_after(device, None).into_iter();
    let mut all: Vec<Life> =
        before.map(|(address, _, stack, bytes)| Life { made: None, freed: None, address, bytes, stack }).collect();
    let mut at: FxHashMap<u64, usize> = all.iter().enumerate().map(|(i, life)| (life.address, i)).collect();
    for (entry, event) in snapshot.trace(device).iter().enumerate() {
        match event.action {
            Action::Alloc => {
                let made = Life {
                    made: Some(entry),
                    freed: None,
                    address: event.address,
                    bytes: event.bytes,
                    stack: event.stack,
                };
                if let Some(replaced) = at.insert(event.address, all.len()) {
                    all[replaced].freed = Some(entry);
                }
                all.push(made);
            }
            Action::FreeRequested | Action::FreeCompleted => {
                if let Some(ended) = at.remove(&event.address) {
                    all[ended].freed = Some(entry);
                }
            }
            _ => {}
        }
    }
    // If entries have no stacks, the blocks at the end may have them.
    let stacks = snapshot.stacks_at_the_end(device);
    for life in all.iter_mut().filter(|life| life.freed.is_none() && !snapshot.has_stack(life.stack)) {
        life.stack = stacks.get(&life.address).copied().unwrap_or_default();
    }
    all
}
