//! A recording reduced to what a page shows: moments, phases, blocks, segments.
//!
//! A page must not grow with the run. In a long run, each stretch of events keeps its highest, its lowest and its last moment; the first steps, which
//! a page opens with, keep every moment; the peak of the whole, that of each phase, and every failed request are always kept. A kept moment is exact:
//! its categories add up to the bytes allocated then, to the byte.

use rustc_hash::FxHashMap;

use super::blocks::{self, Life, Listed};
use super::recording::{CategoryId, Event, MAX_CATEGORIES, NameId, Recording};
use super::segments::{Segments, Stay};
use super::steps::{OPENING_EVENTS, Opening, begins, kind, opening};

/// Number of stretches of events that keep their extremes.
const STRETCHES: usize = 2000;
/// The same of a curve alone: as many as a window has columns of pixels for.
const STRETCHES_OF_CURVE: usize = 400;
/// The most phases that are shown one by one; if there are more, neighbours are shown as one.
const MAX_PHASES: usize = 8000;
/// The most steps that are told apart.
const MAX_STEPS: usize = 8000;
/// The most segments that are drawn.
const MAX_SEGMENTS: usize = 3000;
/// The most failed requests that are shown.
const MAX_FAILURES: usize = 100;

/// Memory after one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Index of the event.
    pub at: u32,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Allocated bytes by category; they add up to `allocated_bytes`.
    pub by_category: [u64; MAX_CATEGORIES],
    /// Requested bytes among the allocated ones.
    pub requested_bytes: u64,
    /// Bytes taken from the driver.
    pub reserved_bytes: u64,
    /// Free bytes in segments that hold a block.
    pub split_bytes: u64,
}

/// A stretch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Name of its phase.
    pub name: NameId,
    /// Number of phases that it stands for.
    pub phases: u32,
    /// Its first event.
    pub from: u32,
    /// Event after which most was allocated.
    pub peak_at: u32,
    /// Bytes allocated then.
    pub peak_bytes: u64,
}

/// The highest peak of all phases of one kind: of the same name, the steps' numbers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    /// Name of the first such phase.
    pub name: NameId,
    /// Number of such phases.
    pub times: u32,
    /// Event after which most was allocated in one of them.
    pub at: u32,
    /// Bytes allocated then.
    pub bytes: u64,
}

/// How much of a run is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What a page shows: moments, blocks, segments.
    Whole,
    /// What a curve needs: some moments.
    Curve,
}

impl Detail {
    fn stretches(self) -> usize {
        match self {
            Self::Whole => STRETCHES,
            Self::Curve => STRETCHES_OF_CURVE,
        }
    }
}

/// A run, reduced to what a page shows.
#[derive(Debug)]
pub struct Timeline<'a> {
    /// Recording that it was made from.
    pub recording: &'a Recording,
    /// Kept moments, in order; for a recording without events a single one with zeros.
    pub moments: Vec<Moment>,
    /// First moment at which most was allocated.
    pub peak: Moment,
    /// Phases in order, each with its peak.
    pub stretches: Vec<Stretch>,
    /// Highest moment of each kind of phase, in the order of their first occurrence.
    pub phase_peaks: Vec<PhasePeak>,
    /// Events of requests that failed.
    pub failures: Vec<u32>,
    /// Events at which steps begin; empty where steps are not known.
    pub steps: Vec<u32>,
    /// First steps of a run with many.
    pub opening: Option<Opening>,
    /// Blocks that are shown one by one.
    pub(super) blocks: Listed,
    pub(super) segments: Vec<Stay>,
}

/// State while the events are read.
struct Fold<'a> {
    recording: &'a Recording,
    now: Moment,
    segments: Segments,
    lives: Vec<Life>,
    retags: Vec<blocks::Retag>,
}

impl Fold<'_> {
    fn apply(&mut self, at: u32, event: &Event) {
        self.now.at = at;
        match *event {
            Event::Alloc { address, requested_bytes, bytes, category, op, scope } => {
                let category = kept(category);
                self.now.allocated_bytes += bytes;
                self.now.requested_bytes += requested_bytes;
                self.now.by_category[category] += bytes;
                self.segments.block(address, bytes, true);
                let (birth, now) = (category as u8, category as u8);
                self.lives.push(Life {
                    from: at,
                    to: u32::MAX,
                    address,
                    requested_bytes,
                    bytes,
                    birth,
                    now,
                    op,
                    scope,
                });
            }
            Event::Free { allocation, .. } => self.free(at, allocation),
            Event::Retag { allocation, category } => self.retag(at, allocation, category),
            Event::SegmentAlloc { address, bytes } => self.segments.take(address, bytes, at),
            Event::SegmentFree { address, bytes } => self.segments.give_back(address, bytes, at),
            Event::Phase { .. } | Event::Oom { .. } => {}
        }
        self.now.reserved_bytes = self.segments.reserved_bytes;
        self.now.split_bytes = self.segments.split_bytes;
    }

    /// A free of an unknown allocation changes nothing.
    fn free(&mut self, at: u32, allocation: u32) {
        let Some(life) = self.lives.get_mut(allocation as usize).filter(|life| life.to == u32::MAX) else { return };
        life.to = at;
        self.now.allocated_bytes -= life.bytes;
        self.now.requested_bytes -= life.requested_bytes;
        self.now.by_category[usize::from(life.now)] -= life.bytes;
        self.segments.block(life.address, life.bytes, false);
    }

    fn retag(&mut self, at: u32, allocation: u32, category: CategoryId) {
        let Some(life) = self.lives.get_mut(allocation as usize).filter(|life| life.to == u32::MAX) else { return };
        let category = kept(category);
        if usize::from(life.now) != category {
            self.now.by_category[usize::from(life.now)] -= life.bytes;
            self.now.by_category[category] += life.bytes;
            life.now = category as u8;
            self.retags.push(blocks::Retag { allocation, at, category: category as u8 });
        }
    }
}

fn kept(category: CategoryId) -> usize {
    usize::from(category.0).min(MAX_CATEGORIES - 1)
}

/// The highest, the lowest and the last moment of a stretch of events.
#[derive(Default)]
struct Extremes {
    highest: Option<Moment>,
    lowest: Option<Moment>,
    last: Option<Moment>,
}

impl Extremes {
    fn see(&mut self, moment: &Moment) {
        let bytes = moment.allocated_bytes;
        if self.highest.is_none_or(|highest| bytes > highest.allocated_bytes) {
            self.highest = Some(*moment);
        }
        if self.lowest.is_none_or(|lowest| bytes < lowest.allocated_bytes) {
            self.lowest = Some(*moment);
        }
        self.last = Some(*moment);
    }

    fn end(&mut self, into: &mut Vec<Moment>) {
        let ended = std::mem::take(self);
        into.extend([ended.highest, ended.lowest, ended.last].into_iter().flatten());
    }
}

/// Phases as they are read, each with its peak.
struct Phases<'a> {
    recording: &'a Recording,
    /// Index in `peaks` of each name.
    kinds: FxHashMap<NameId, usize>,
    stretches: Vec<Stretch>,
    peaks: Vec<PhasePeak>,
    /// Moments of `peaks`.
    highest: Vec<Moment>,
    /// Index of the current phase in `peaks`.
    current: usize,
    /// Moment of the last stretch's peak.
    peak: Moment,
    /// Moments of the other stretches' peaks.
    moments: Vec<Moment>,
    /// Number of phases per stretch.
    together: usize,
    begun: usize,
}

impl<'a> Phases<'a> {
    fn new(recording: &'a Recording, phases: usize) -> Self {
        Self {
            recording,
            kinds: FxHashMap::default(),
            stretches: Vec::new(),
            peaks: Vec::new(),
            highest: Vec::new(),
            current: 0,
            peak: Moment::default(),
            moments: Vec::new(),
            together: phases.div_ceil(MAX_PHASES).max(1),
            begun: 0,
        }
    }

    fn begin(&mut self, name: NameId, now: &Moment) {
        let (at, bytes) = (now.at, now.allocated_bytes);
        let recording = self.recording;
        self.current = *self.kinds.entry(name).or_insert_with(|| {
            let of = |name: NameId| kind(recording.text(name));
            self.peaks.iter().position(|peak| of(peak.name) == of(name)).unwrap_or_else(|| {
                self.peaks.push(PhasePeak { name, times: 0, at, bytes: 0 });
                self.highest.push(*now);
                self.peaks.len() - 1
            })
        });
        self.peaks[self.current].times += 1;
        if self.begun.is_multiple_of(self.together) {
            self.end();
            self.stretches.push(Stretch { name, phases: 0, from: at, peak_at: at, peak_bytes: bytes });
            self.peak = *now;
        }
        self.begun += 1;
        if let Some(stretch) = self.stretches.last_mut() {
            stretch.phases += 1;
        }
        self.see(now);
    }

    fn see(&mut self, now: &Moment) {
        let bytes = now.allocated_bytes;
        if let Some(peak) = self.peaks.get_mut(self.current).filter(|peak| bytes > peak.bytes) {
            (peak.at, peak.bytes) = (now.at, bytes);
            self.highest[self.current] = *now;
        }
        if let Some(stretch) = self.stretches.last_mut().filter(|stretch| bytes > stretch.peak_bytes) {
            (stretch.peak_at, stretch.peak_bytes) = (now.at, bytes);
            self.peak = *now;
        }
    }

    /// Ends the last stretch.
    fn end(&mut self) {
        if !self.stretches.is_empty() {
            self.moments.push(self.peak);
        }
    }
}

impl<'a> Timeline<'a> {
    /// Reads a recording from its beginning.
    pub fn from_recording(recording: &'a Recording) -> Self {
        Self::in_detail(recording, Detail::Whole)
    }

    /// The same, and how much of it is kept.
    pub fn in_detail(recording: &'a Recording, detail: Detail) -> Self {
        let stretches = detail.stretches();
        let events = recording.events();
        let phases = events.iter().filter(|event| matches!(event, Event::Phase { .. })).count();
        let mut fold = Fold {
            recording,
            now: Moment::default(),
            segments: Segments::default(),
            lives: Vec::with_capacity(recording.allocations()),
            retags: Vec::new(),
        };
        let mut phases = Phases::new(recording, phases);
        let opening = opening(recording);
        let opened = opening.filter(|_| detail == Detail::Whole);
        let opened = opened.map_or(0, |opening| (opening.end as usize).min(OPENING_EVENTS));
        let (mut extremes, mut stretch) = (Extremes::default(), 0);
        let (mut moments, mut peak, mut failures) = (Vec::new(), Moment::default(), Vec::new());
        for (index, event) in events.iter().enumerate() {
            fold.apply(index as u32, event);
            let now = &fold.now;
            match *event {
                Event::Phase { name } => phases.begin(name, now),
                _ => phases.see(now),
            }
            if matches!(event, Event::Oom { .. }) && failures.len() < MAX_FAILURES {
                failures.push(now.at);
                moments.push(*now);
            }
            if now.allocated_bytes > peak.allocated_bytes {
                peak = *now;
            }
            let whole = events.len() <= 3 * stretches || index < opened;
            let at = if whole { index } else { opened + index * stretches / events.len() };
            if at != stretch {
                extremes.end(&mut moments);
                stretch = at;
            }
            extremes.see(now);
        }
        extremes.end(&mut moments);
        phases.end();
        moments.push(peak);
        fold.finish(moments, phases, peak, failures, (opening, detail))
    }

    /// Returns the kept moment of an event: its own, or the previous one.
    pub fn moment(&self, at: u32) -> &Moment {
        let after = self.moments.partition_point(|moment| moment.at <= at);
        &self.moments[after.saturating_sub(1)]
    }
}

impl<'a> Fold<'a> {
    fn finish(
        self,
        mut moments: Vec<Moment>,
        phases: Phases<'_>,
        peak: Moment,
        failures: Vec<u32>,
        (opening, detail): (Option<Opening>, Detail),
    ) -> Timeline<'a> {
        let Phases { stretches, peaks: phase_peaks, highest, moments: of_phases, .. } = phases;
        moments.extend(of_phases.into_iter().chain(highest));
        moments.sort_by_key(|moment| moment.at);
        moments.dedup_by_key(|moment| moment.at);
        let wanted: Vec<u32> = std::iter::once(peak.at).chain(phase_peaks.iter().map(|peak| peak.at)).collect();
        let opened = opening.map_or(0, |opening| opening.end);
        let (blocks, segments) = match detail {
            Detail::Whole => {
                (blocks::select(self.lives, self.retags, &wanted, opened), self.segments.stays(MAX_SEGMENTS, peak.at))
            }
            Detail::Curve => (Listed::default(), Vec::new()),
        };
        let recording = self.recording;
        let steps = Some(begins(recording)).filter(|begins| begins.len() > 1 && begins.len() <= MAX_STEPS);
        let steps = steps.unwrap_or_default();
        Timeline { recording, moments, peak, stretches, phase_peaks, failures, steps, opening, blocks, segments }
    }
}
