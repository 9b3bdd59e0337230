//! Data for the page's script: columns of numbers, each as the difference to the previous one.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use super::recording::{Event, NameId};
use super::text::beginning;
use super::timeline::{Moment, Timeline};

/// A column: the first value, then differences. Small numbers keep the page small.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct Deltas(Vec<i64>);

impl FromIterator<u64> for Deltas {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut before = 0;
        let delta = |value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            let delta = value - before;
            before = value;
            delta
        };
        Self(values.into_iter().map(delta).collect())
    }
}

/// Characters of one name that a page holds: it stays small whatever a file names.
const MAX_NAME: usize = 20_000;

/// A run for the script. Bytes are exact; `at`, `from`, `to` are indices of events.
#[derive(Serialize)]
pub(super) struct Payload<'a> {
    name: &'a str,
    events: usize,
    /// Texts for the numbers `op`, `scope` and `name` below.
    names: Vec<&'a str>,
    categories: Vec<&'a str>,
    moments: Moments,
    /// Index of the peak in `moments`.
    peak: usize,
    phases: Phases,
    phase_peaks: Vec<[u64; 4]>,
    failures: Vec<usize>,
    blocks: Blocks,
    segments: Segments,
    /// Events at which steps begin; empty where steps are not known.
    steps: Deltas,
    /// First steps of a run with many: the event at which they end, how many they are, how many the run has.
    opening: Option<[u32; 3]>,
    /// Available memory, with its name.
    limit: Option<&'a (String, u64)>,
    /// True if a scope is a stack, outermost first, with dots between.
    stacks: bool,
}

#[derive(Serialize)]
struct Moments {
    at: Deltas,
    categories: Vec<Deltas>,
    requested: Deltas,
    reserved: Deltas,
    split: Deltas,
    /// Kinds of events: a alloc, f free, t retag, s segment taken, g segment given back, p phase, o out of memory.
    kind: String,
    op: Vec<u32>,
    scope: Vec<u32>,
    bytes: Vec<u64>,
}

#[derive(Serialize)]
struct Phases {
    name: Vec<u32>,
    phases: Vec<u32>,
    from: Deltas,
    peak_at: Deltas,
    peak: Vec<u64>,
}

#[derive(Serialize)]
struct Blocks {
    of: usize,
    from_bytes: u64,
    peaks_complete: bool,
    from: Deltas,
    /// Number of events during which each block lived; -1 if to the end.
    events: Vec<i64>,
    address: Deltas,
    bytes: Vec<u64>,
    /// Bytes of a block beyond those requested.
    rounding: Vec<u64>,
    category: Vec<u8>,
    op: Vec<u32>,
    scope: Vec<u32>,
    retag_block: Deltas,
    retag_at: Deltas,
    retag_category: Vec<u8>,
}

#[derive(Serialize)]
struct Segments {
    address: Deltas,
    bytes: Vec<u64>,
    from: Deltas,
    events: Vec<i64>,
}

/// Names that are used, with new numbers.
#[derive(Default)]
struct Used {
    numbers: BTreeMap<NameId, u32>,
    order: Vec<NameId>,
}

impl Used {
    fn number(&mut self, name: NameId) -> u32 {
        *self.numbers.entry(name).or_insert_with(|| {
            self.order.push(name);
            self.order.len() as u32 - 1
        })
    }
}

fn lasts(from: u32, to: u32) -> i64 {
    if to == u32::MAX { -1 } else { i64::from(to) - i64::from(from) }
}

impl<'a> Payload<'a> {
    /// Makes the data of a run; `limit` is the available memory, with its name.
    pub(super) fn from_timeline(timeline: &Timeline<'a>, limit: Option<&'a (String, u64)>) -> Self {
        let recording = timeline.recording;
        let mut used = Used::default();
        used.number(NameId(0));
        let moments = moments(timeline, &mut used);
        let index = |at: u32| timeline.moments.partition_point(|moment| moment.at < at);
        let phases = phases(timeline, &mut used);
        let row = |used: &mut Used, peak: &super::timeline::PhasePeak| {
            [u64::from(used.number(peak.name)), u64::from(peak.times), index(peak.at) as u64, peak.bytes]
        };
        let phase_peaks = timeline.phase_peaks.iter().map(|peak| row(&mut used, peak)).collect();
        let blocks = blocks(timeline, &mut used);
        Self {
            name: &recording.name,
            events: recording.events().len(),
            categories: recording.categories().iter().map(String::as_str).collect(),
            moments,
            peak: index(timeline.peak.at),
            phases,
            phase_peaks,
            failures: timeline.failures.iter().map(|&at| index(at)).collect(),
            blocks,
            segments: segments(timeline),
            steps: timeline.steps.iter().map(|&at| u64::from(at)).collect(),
            opening: timeline.opening.map(|opening| [opening.end, opening.steps, opening.of]),
            limit,
            stacks: recording.scopes_are_stacks,
            names: used.order.iter().map(|&name| beginning(recording.text(name), MAX_NAME)).collect(),
        }
    }

    /// Writes the text of a `<script type="application/json">`: nothing in it can end the script or begin a comment.
    pub(super) fn script(&self) -> serde_json::Result<String> {
        let mut text = Vec::new();
        self.serialize(&mut serde_json::Serializer::with_formatter(&mut text, InScript))?;
        // Never wrong: JSON is UTF-8.
        String::from_utf8(text).map_err(serde::ser::Error::custom)
    }
}

/// Escapes the characters of markup. JSON has them only inside strings, so its numbers need no second look.
struct InScript;

impl serde_json::ser::Formatter for InScript {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&']) {
            to.write_all(&rest.as_bytes()[..at])?;
            write!(to, "\\u{:04x}", rest.as_bytes()[at])?;
            rest = &rest[at + 1..];
        }
        to.write_all(rest.as_bytes())
    }
}

fn moments(timeline: &Timeline<'_>, used: &mut Used) -> Moments {
    let all = &timeline.moments;
    let column = |value: &dyn Fn(&Moment) -> u64| -> Deltas { all.iter().map(value).collect() };
    let categories = 0..timeline.recording.categories().len();
    let mut moments = Moments {
        at: column(&|moment| u64::from(moment.at)),
        categories: categories.map(|c| column(&|moment| moment.by_category[c])).collect(),
        requested: column(&|moment| moment.requested_bytes),
        reserved: column(&|moment| moment.reserved_bytes),
        split: column(&|moment| moment.split_bytes),
        kind: String::with_capacity(all.len()),
        op: Vec::with_capacity(all.len()),
        scope: Vec::with_capacity(all.len()),
        bytes: Vec::with_capacity(all.len()),
    };
    let allocations = Allocations::from_timeline(timeline);
    for moment in all {
        let (kind, op, scope, bytes) = allocations.event(moment.at);
        moments.kind.push(kind);
        moments.op.push(used.number(op));
        moments.scope.push(used.number(scope));
        moments.bytes.push(bytes);
    }
    moments
}

/// Finds each allocation's event: a free is described by what it freed.
struct Allocations<'a> {
    events: &'a [Event],
    at: Vec<u32>,
}

impl<'a> Allocations<'a> {
    fn from_timeline(timeline: &Timeline<'a>) -> Self {
        let events = timeline.recording.events();
        let made = events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Alloc { .. }));
        Self { events, at: made.map(|(at, _)| at as u32).collect() }
    }

    /// Kind, operator, module and bytes of an event.
    fn event(&self, at: u32) -> (char, NameId, NameId, u64) {
        let freed = |allocation: u32| {
            let at = self.at.get(allocation as usize).copied()?;
            match self.events.get(at as usize) {
                Some(Event::Alloc { scope, bytes, .. }) => Some((*scope, *bytes)),
                _ => None,
            }
        };
        match self.events.get(at as usize) {
            Some(&Event::Alloc { op, scope, bytes, .. }) => ('a', op, scope, bytes),
            Some(&Event::Free { allocation, op }) => {
                let (scope, bytes) = freed(allocation).unwrap_or_default();
                ('f', op, scope, bytes)
            }
            Some(&Event::Retag { allocation, .. }) => {
                let (scope, bytes) = freed(allocation).unwrap_or_default();
                ('t', NameId(0), scope, bytes)
            }
            Some(&Event::SegmentAlloc { bytes, .. }) => ('s', NameId(0), NameId(0), bytes),
            Some(&Event::SegmentFree { bytes, .. }) => ('g', NameId(0), NameId(0), bytes),
            Some(&Event::Oom { requested_bytes, op }) => ('o', op, NameId(0), requested_bytes),
            Some(Event::Phase { .. }) | None => ('p', NameId(0), NameId(0), 0),
        }
    }
}

fn phases(timeline: &Timeline<'_>, used: &mut Used) -> Phases {
    let all = &timeline.stretches;
    Phases {
        name: all.iter().map(|stretch| used.number(stretch.name)).collect(),
        phases: all.iter().map(|stretch| stretch.phases).collect(),
        from: all.iter().map(|stretch| u64::from(stretch.from)).collect(),
        peak_at: all.iter().map(|stretch| u64::from(stretch.peak_at)).collect(),
        peak: all.iter().map(|stretch| stretch.peak_bytes).collect(),
    }
}

fn blocks(timeline: &Timeline<'_>, used: &mut Used) -> Blocks {
    let listed = &timeline.blocks;
    let lives = &listed.lives;
    Blocks {
        of: listed.of,
        from_bytes: listed.from_bytes,
        peaks_complete: listed.peaks_complete,
        from: lives.iter().map(|life| u64::from(life.from)).collect(),
        events: lives.iter().map(|life| lasts(life.from, life.to)).collect(),
        address: lives.iter().map(|life| life.address).collect(),
        bytes: lives.iter().map(|life| life.bytes).collect(),
        rounding: lives.iter().map(|life| life.bytes.saturating_sub(life.requested_bytes)).collect(),
        category: lives.iter().map(|life| life.birth).collect(),
        op: lives.iter().map(|life| used.number(life.op)).collect(),
        scope: lives.iter().map(|life| used.number(life.scope)).collect(),
        retag_block: listed.retags.iter().map(|retag| u64::from(retag.allocation)).collect(),
        retag_at: listed.retags.iter().map(|retag| u64::from(retag.at)).collect(),
        retag_category: listed.retags.iter().map(|retag| retag.category).collect(),
    }
}

fn segments(timeline: &Timeline<'_>) -> Segments {
    let all = &timeline.segments;
    Segments {
        address: all.iter().map(|stay| stay.address).collect(),
        bytes: all.iter().map(|stay| stay.bytes).collect(),
        from: all.iter().map(|stay| u64::from(stay.from)).collect(),
        events: all.iter().map(|stay| lasts(stay.from, stay.to)).collect(),
    }
}
