//! A recording with what is needed to look at any of its events at once.

use super::curve::Curve;
use super::living::Living;
use super::peaks::peaks;
use crate::report::segments::{Segments, Stay};
use crate::report::steps;
use crate::report::{CategoryId, Event, NameId, Recording};

/// Stretches of a recording between which one steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Events at which the steps of a training begin.
    Steps(Vec<u32>),
    /// There are no steps: events at which phases begin.
    Phases(Vec<u32>),
    /// There are neither.
    None,
}

/// A recording, prepared.
#[derive(Debug)]
pub struct History {
    /// The recording.
    pub recording: Recording,
    /// Allocated bytes after each event.
    pub allocated: Curve,
    /// Bytes taken from the driver, after each event.
    pub reserved: Curve,
    /// Events of peaks that stand out by a tenth of the highest.
    pub peaks: Vec<u32>,
    /// Events of requests that failed.
    pub failures: Vec<u32>,
    /// Beginnings of steps or phases.
    pub marks: Marks,
    /// Events at which phases begin, with their names.
    pub(super) phases: Vec<(u32, NameId)>,
    /// For each allocation, its event and that of its free (`u32::MAX`: none).
    pub(super) made: Vec<u32>,
    pub(super) freed: Vec<u32>,
    pub(super) blocks: Living,
    /// Changes of categories, by allocation and then by event.
    pub(super) retags: Vec<(u32, u32, CategoryId)>,
    pub(super) stays: Stays,
}

/// Segments with their lifetimes, in order of their beginning.
#[derive(Debug, Default)]
pub(super) struct Stays {
    pub(super) all: Vec<Stay>,
    from: Vec<u32>,
    to: Vec<u32>,
    living: Living,
}

impl Stays {
    fn from_segments(segments: Segments) -> Self {
        let all = segments.stays(usize::MAX, 0);
        let from: Vec<u32> = all.iter().map(|stay| stay.from).collect();
        let to: Vec<u32> = all.iter().map(|stay| stay.to).collect();
        let living = Living::new(&from, &to);
        Self { all, from, to, living }
    }

    pub(super) fn at(&self, moment: u32) -> impl Iterator<Item = &Stay> {
        self.living.at(&self.from, &self.to, moment).map(|stay| &self.all[stay])
    }
}

/// State while the events are read.
#[derive(Default)]
struct Fold {
    allocated: u64,
    segments: Segments,
    made: Vec<u32>,
    freed: Vec<u32>,
    retags: Vec<(u32, u32, CategoryId)>,
    phases: Vec<(u32, NameId)>,
    failures: Vec<u32>,
}

impl Fold {
    fn apply(&mut self, at: u32, events: &[Event]) {
        match events[at as usize] {
            Event::Alloc { bytes, .. } => {
                self.allocated = self.allocated.saturating_add(bytes);
                self.made.push(at);
                self.freed.push(u32::MAX);
            }
            // A free of an unknown allocation changes nothing.
            Event::Free { allocation, .. } => {
                if let Some(freed) = self.freed.get_mut(allocation as usize).filter(|freed| **freed == u32::MAX) {
                    *freed = at;
                    let made = self.made[allocation as usize];
                    if let Event::Alloc { bytes, .. } = events[made as usize] {
                        self.allocated = self.allocated.saturating_sub(bytes);
                    }
                }
            }
            Event::Retag { allocation, category } => self.retags.push((allocation, at, category)),
            Event::SegmentAlloc { address, bytes } => self.segments.take(address, bytes, at),
            Event::SegmentFree { address, bytes } => self.segments.give_back(address, bytes, at),
            Event::Phase { name } => self.phases.push((at, name)),
            Event::Oom { .. } => self.failures.push(at),
        }
    }
}

impl History {
    /// Reads a recording from its beginning, once.
    pub fn from_recording(recording: Recording) -> Self {
        let events = recording.events();
        let mut fold = Fold::default();
        let (mut allocated, mut reserved) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        for at in 0..events.len() {
            fold.apply(at as u32, events);
            allocated.push(fold.allocated);
            reserved.push(fold.segments.reserved_bytes);
        }
        let Fold { segments, made, freed, mut retags, phases, failures, .. } = fold;
        retags.sort_by_key(|&(allocation, at, _)| (allocation, at));
        let begins = steps::begins(&recording);
        let marks = match (begins.len() > 1, phases.is_empty()) {
            (true, _) => Marks::Steps(begins),
            (false, false) => Marks::Phases(phases.iter().map(|(at, _)| *at).collect()),
            (false, true) => Marks::None,
        };
        let peaks = peaks(&allocated);
        let (allocated, reserved) = (Curve::from_values(allocated), Curve::from_values(reserved));
        let (blocks, stays) = (Living::new(&made, &freed), Stays::from_segments(segments));
        Self { recording, allocated, reserved, peaks, failures, marks, phases, made, freed, blocks, retags, stays }
    }

    /// Number of events.
    pub fn len(&self) -> u32 {
        self.recording.events().len() as u32
    }

    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first event after which most was allocated; 0 if nothing ever was.
    pub fn highest(&self) -> u32 {
        let highest = self.allocated.extremes(0..self.len() as usize).1;
        let at = self.peaks.iter().copied().find(|&at| self.allocated.at(at) == highest);
        at.unwrap_or(0)
    }

    /// Returns the numbers of the allocations that live after an event.
    pub(super) fn living(&self, at: u32) -> impl Iterator<Item = usize> + '_ {
        self.blocks.at(&self.made, &self.freed, at)
    }

    /// Returns the category of an allocation after an event.
    pub(super) fn category(&self, allocation: usize, at: u32, first: CategoryId) -> CategoryId {
        let until = self.retags.partition_point(|&(of, when, _)| (of as usize, when) <= (allocation, at));
        match until.checked_sub(1).map(|last| self.retags[last]) {
            Some((of, _, category)) if of as usize == allocation => category,
            _ => first,
        }
    }
}
