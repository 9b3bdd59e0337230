//! The private pool of each allocation, as far as a recording tells.
//!
//! Releases up to 2.11 name the pool of a segment only, and only of those that are there at the end. What was given back
//! before counts as nobody's.

use std::collections::BTreeMap;

use super::model::{Action, PoolId, Snapshot};

/// Where the segments at the end are, since when, and whose.
#[derive(Debug)]
pub(super) struct Homes(BTreeMap<u64, Home>);

#[derive(Debug)]
struct Home {
    /// The first address behind it.
    end: u64,
    /// The entry that took it from the driver; `None`: it was there before, or grows.
    since: Option<usize>,
    pool: PoolId,
}

impl Homes {
    pub(super) fn of(snapshot: &Snapshot, device: usize) -> Self {
        let mut taken: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, event) in snapshot.trace(device).iter().enumerate() {
            if event.action == Action::SegmentAlloc {
                taken.insert(event.address, at);
            }
        }
        let home = |segment: &super::model::Segment| {
            let since = taken.get(&segment.address).copied().filter(|_| !segment.expandable);
            let end = segment.address.saturating_add(segment.bytes);
            (segment.address, Home { end, since, pool: segment.pool })
        };
        Self(snapshot.segments_of(device).map(home).collect())
    }

    /// The pool of what an entry of the trace allocates at an address; `None` for what lived before it.
    pub(super) fn pool(&self, address: u64, at: Option<usize>) -> PoolId {
        let home = self.0.range(..=address).next_back().map(|(_, home)| home);
        // Addresses come back: a segment that was there earlier may have been another pool's.
        let there = |home: &&Home| address < home.end && home.since.is_none_or(|since| at.is_some_and(|at| since < at));
        home.filter(there).map_or(PoolId::default(), |home| home.pool)
    }
}
