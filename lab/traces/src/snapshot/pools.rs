//! Finds the private pool of each allocation, as far as a recording names it.
//!
//! Releases up to 2.11 name the pool only of segments that exist at the end. Allocations in segments freed before count as in no private pool.

use std::collections::BTreeMap;

use super::model::{Action, PoolId, Snapshot};

/// Segments at the end, by address: since when they exist, and their pool.
#[derive(Debug)]
pub(super) struct Homes(BTreeMap<u64, Home>);

#[derive(Debug)]
struct Home {
    /// First address after the segment.
    end: u64,
    /// Entry that took it from the driver; `None` if it existed before, or grows.
    since: Option<usize>,
    pool: PoolId,
}

impl Homes {
    pub(super) fn from_snapshot(snapshot: &Snapshot, device: usize) -> Self {
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

    /// Returns the pool of an allocation made by an entry of the trace (`None`: before the trace) at an address.
    pub(super) fn pool(&self, address: u64, at: Option<usize>) -> PoolId {
        let home = self.0.range(..=address).next_back().map(|(_, home)| home);
        // Addresses are reused: an earlier segment at this address may have been another pool's.
        let there = |home: &&Home| address < home.end && home.since.is_none_or(|since| at.is_some_and(|at| since < at));
        home.filter(there).map_or(PoolId::default(), |home| home.pool)
    }
}
