//! A run that is known in advance, the places of its blocks, and the least memory that any allocator needs for it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::memory::event::{AllocId, Event};
use crate::memory::stats::Stat;

/// Offsets in plans are multiples of this.
pub const ALIGNMENT_BYTES: u64 = 512;

/// One allocation of a known run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Bytes requested.
    pub bytes: u64,
    /// Time of the allocation, by any clock that orders the run.
    pub from: u64,
    /// Time of the free (> `from`): from then on the bytes can belong to another allocation.
    pub to: u64,
}

impl Lifetime {
    /// The bytes that it takes in a plan.
    pub(crate) fn rounded_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGNMENT_BYTES)
    }

    /// True if both live at some time.
    pub fn overlaps(&self, other: &Lifetime) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// Returns the lifetimes in a recording, in order of allocation. The clock is the number of the event. An allocation
/// that is never freed lives to the end.
pub fn lifetimes<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<Lifetime> {
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    let mut open: FxHashMap<AllocId, usize> = FxHashMap::default();
    let mut clock = 0;
    for event in events {
        clock += 1;
        match *event {
            Event::Alloc { id, requested_bytes, .. } => {
                open.insert(id, lifetimes.len());
                lifetimes.push(Lifetime { bytes: requested_bytes, from: clock, to: u64::MAX });
            }
            Event::Free { id, .. } => {
                if let Some(at) = open.remove(&id) {
                    lifetimes[at].to = clock;
                }
            }
            _ => {}
        }
    }
    lifetimes
}

/// The method that made a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Largest first, each in the smallest gap that is free for its whole life (Pisarchyk and Lee 2020, "greedy by
    /// size").
    LargestFirst,
    /// Like `LargestFirst`, by size times lifetime.
    LargestAreaFirst,
    /// Like `LargestFirst`, by lifetime: the longest-lived are at the bottom.
    LongestFirst,
    /// In order of time, each in the smallest gap that fits at that moment. This is an allocator that does not know the
    /// future, but has one segment of unlimited size.
    BestFitInTime,
}

impl Packing {
    /// All packings.
    pub const ALL: [Packing; 4] =
        [Packing::LargestFirst, Packing::LargestAreaFirst, Packing::LongestFirst, Packing::BestFitInTime];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Packing::LargestFirst => "largest first",
            Packing::LargestAreaFirst => "largest area first",
            Packing::LongestFirst => "longest first",
            Packing::BestFitInTime => "best fit in time",
        }
    }
}

/// The place of each allocation of a run, all in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Offset of each lifetime, in the order of the lifetimes.
    pub offsets: Vec<u64>,
    /// Size of the segment.
    pub bytes: u64,
    /// The packing that made it.
    pub packing: Packing,
}

/// The lower bound that no allocator can beat, with its proof: lifetimes that all live at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The sum of their sizes.
    pub bytes: u64,
    /// The time.
    pub at: u64,
    /// Indices of the lifetimes.
    pub live: Vec<usize>,
}

impl Bound {
    /// Finds the time at which most bytes live.
    pub fn from_lifetimes(lifetimes: &[Lifetime]) -> Self {
        let mut changes: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * lifetimes.len());
        for lifetime in lifetimes {
            changes.push((lifetime.from, true, lifetime.rounded_bytes()));
            changes.push((lifetime.to, false, lifetime.rounded_bytes()));
        }
        changes.sort_unstable(); // at one moment, frees come before allocations
        let (mut live, mut at) = (Stat::default(), 0);
        for (moment, birth, bytes) in changes {
            if !birth {
                live.decrease(bytes);
                continue;
            }
            if live.current + bytes > live.peak {
                at = moment;
            }
            live.increase(bytes);
        }
        let lives = |lifetime: &Lifetime| lifetime.from <= at && at < lifetime.to;
        let members = lifetimes.iter().enumerate().filter(|(_, lifetime)| lives(lifetime)).map(|(index, _)| index);
        Self { bytes: live.peak, at, live: members.collect() }
    }

    /// True if the proof holds: all of them live at that time, and their sizes add up.
    pub fn check(&self, lifetimes: &[Lifetime]) -> bool {
        let members: Option<Vec<&Lifetime>> = self.live.iter().map(|&index| lifetimes.get(index)).collect();
        let distinct = self.live.windows(2).all(|pair| pair[0] < pair[1]);
        members.is_some_and(|members| {
            distinct
                && members.iter().all(|lifetime| lifetime.from <= self.at && self.at < lifetime.to)
                && members.iter().map(|lifetime| lifetime.rounded_bytes()).sum::<u64>() == self.bytes
        })
    }
}

impl Plan {
    /// Checks that the plan is right for these lifetimes: all are inside the segment and aligned, and no two overlap in
    /// both bytes and time. O(n log n).
    ///
    /// # Errors
    /// The indices of two lifetimes that collide. If one lies outside or is unaligned, its index twice.
    pub fn check(&self, lifetimes: &[Lifetime]) -> Result<(), (usize, usize)> {
        if self.offsets.len() != lifetimes.len() {
            let first_missing = self.offsets.len().min(lifetimes.len());
            return Err((first_missing, first_missing));
        }
        let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * lifetimes.len());
        for (index, lifetime) in lifetimes.iter().enumerate() {
            let end = self.offsets[index].checked_add(lifetime.rounded_bytes());
            let inside = end.is_some_and(|end| end <= self.bytes);
            if !inside || !self.offsets[index].is_multiple_of(ALIGNMENT_BYTES) || lifetime.to <= lifetime.from {
                return Err((index, index));
            }
            changes.push((lifetime.from, true, index));
            changes.push((lifetime.to, false, index));
        }
        changes.sort_unstable();
        // Live blocks by offset: a new block collides with a neighbour, or with none.
        let mut live: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, birth, index) in changes {
            let (offset, bytes) = (self.offsets[index], lifetimes[index].rounded_bytes());
            if bytes == 0 {
                continue;
            }
            if !birth {
                live.remove(&offset);
                continue;
            }
            if let Some((_, &next)) = live.range(offset..offset + bytes).next() {
                return Err((next, index));
            }
            if let Some((&before, &prev)) = live.range(..offset).next_back()
                && before + lifetimes[prev].rounded_bytes() > offset
            {
                return Err((prev, index));
            }
            live.insert(offset, index);
        }
        Ok(())
    }
}
