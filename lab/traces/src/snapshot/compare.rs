//! Compares two snapshots.

use std::collections::{BTreeMap, HashSet};

use super::held::Totals;
use super::model::{Snapshot, StackId, total};

/// Memory of one stack in two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The stack, a line per frame, innermost first; empty: it was not recorded.
    pub stack: Vec<String>,
    /// Requested bytes: before, after.
    pub bytes: (u64, u64),
    /// Allocations: before, after.
    pub allocations: (u64, u64),
}

/// Differences of two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Totals: before, after.
    pub totals: (Totals, Totals),
    /// Stacks that hold more or less than before, the largest difference first.
    pub changes: Vec<Change>,
    /// Segments (by address and size) that are only in the first snapshot; only in the second.
    pub segments: (usize, usize),
    /// Bytes of these segments.
    pub segment_bytes: (u64, u64),
}

impl Snapshot {
    /// Formats a stack, a line per frame, innermost first: `module.py:1370 convert`.
    pub fn stack_lines(&self, stack: StackId) -> Vec<String> {
        self.stack(stack).map(|frame| format!("{}:{} {}", frame.filename, frame.line, frame.name)).collect()
    }
}

/// Compares the memory held on a device. Stacks are equal if their frames have the same text.
pub fn compare(before: &Snapshot, after: &Snapshot, device: usize) -> Comparison {
    let mut by_stack: BTreeMap<Vec<String>, Change> = BTreeMap::new();
    for (snapshot, second) in [(before, false), (after, true)] {
        for held in snapshot.held(device) {
            let stack = snapshot.stack_lines(held.stack);
            let fresh = Change { stack: stack.clone(), bytes: (0, 0), allocations: (0, 0) };
            let change = by_stack.entry(stack).or_insert(fresh);
            let (bytes, allocations) = match second {
                false => (&mut change.bytes.0, &mut change.allocations.0),
                true => (&mut change.bytes.1, &mut change.allocations.1),
            };
            *bytes = bytes.saturating_add(held.bytes);
            *allocations += held.allocations;
        }
    }
    let differs = |change: &Change| change.bytes.0 != change.bytes.1 || change.allocations.0 != change.allocations.1;
    let mut changes: Vec<Change> = by_stack.into_values().filter(differs).collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.bytes.0.abs_diff(change.bytes.1)));
    let keys = |snapshot: &Snapshot| -> HashSet<(u64, u64)> {
        snapshot.segments_of(device).map(|segment| (segment.address, segment.bytes)).collect()
    };
    let (first, second) = (keys(before), keys(after));
    let only = |one: &HashSet<(u64, u64)>, other: &HashSet<(u64, u64)>| {
        let only: Vec<u64> = one.difference(other).map(|(_, bytes)| *bytes).collect();
        (only.len(), total(only))
    };
    let (gone, new) = (only(&first, &second), only(&second, &first));
    Comparison {
        totals: (before.totals(device), after.totals(device)),
        changes,
        segments: (gone.0, new.0),
        segment_bytes: (gone.1, new.1),
    }
}
