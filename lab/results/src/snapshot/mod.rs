//! A snapshot of PyTorch's (`vramlab-snapshot-1`): who holds memory at its end and at the peak of its trace, and what is left over from the trace.

use serde::{Deserialize, Serialize};

mod moment;
mod out_of_memory;
mod sections;

pub use moment::{CategoryResult, LineResult, MomentResult, OperatorBytes};
pub(crate) use out_of_memory::CARD_HAD_ROOM;
pub use out_of_memory::SnapshotOom;

use lab_traces::snapshot::{Growth, Held, Segment, Snapshot, Totals, total, what_if};
use lab_traces::stacks::{Guesses, matches};

use super::{OtherDevice, WhatIfResult};

pub(super) use sections::brief;

/// Default number of stacks and segments that are listed.
const TOP: usize = 10;

/// Traces with more entries are not replayed unasked: `tune` does it.
const MAX_REPLAYED: usize = 300_000;

/// Selection within a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Rows of each table; `None` for as many as a screen shows.
    pub top: Option<usize>,
    /// Entries among which the moment is searched: first and last.
    pub range: Option<(usize, usize)>,
    /// Only allocations with this line, module, function or operator in their stack.
    pub matching: Option<String>,
}

/// A device's memory in a snapshot. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotResult {
    /// The file.
    pub file: String,
    /// Index of the device.
    pub device: usize,
    /// Number of devices.
    pub devices: usize,
    /// The other devices that have memory or a trace.
    #[serde(default)]
    pub other_devices: Vec<OtherDevice>,
    /// Why the file's segments were left out, if they contradict each other; null if they were read.
    #[serde(default)]
    pub unread_segments: Option<String>,
    /// Number of entries in its trace.
    pub events: usize,
    /// Its memory at the end.
    pub totals: TotalsResult,
    /// Holders of memory when it ran out, or else when most was held.
    #[serde(default)]
    pub moment: Option<MomentResult>,
    /// The last request that failed; null if none did.
    #[serde(default)]
    pub out_of_memory: Option<SnapshotOom>,
    /// Entry with which each step of training ended; empty if they are not known.
    #[serde(default)]
    pub step_ends: Vec<usize>,
    /// True if the recording marks steps; false if they are guessed from stacks.
    #[serde(default)]
    pub steps_are_told: bool,
    /// Ranges that the program named.
    #[serde(default)]
    pub ranges: Vec<NamedRange>,
    /// Stacks that hold most at the end.
    pub held: Vec<HeldResult>,
    /// Sum over all stacks.
    #[serde(default)]
    pub held_in_all: HeldSum,
    /// Its segments.
    pub segments: Vec<SegmentResult>,
    /// Memory held when the trace began; without requests in it, all memory held at the end.
    #[serde(default)]
    pub before: HeldBefore,
    /// The peak of the trace; null without one.
    pub peak: Option<PeakOfTrace>,
    /// Memory allocated within the trace and live at its end.
    pub left_over: Vec<HeldResult>,
    /// Sum of all of it.
    #[serde(default)]
    pub left_over_in_all: HeldSum,
    /// Bytes live when each step ended, if the recording marks steps.
    pub live_at_step_ends: Vec<u64>,
    /// Stacks that hold ever more as steps go on, most bytes first.
    pub growing: Vec<GrowingStack>,
    /// The selection that was looked at.
    #[serde(skip)]
    pub looked: Looked,
}

/// Memory that was held when a trace began. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldBefore {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// True if one of these blocks has a stack: it was recorded, and the trace has lost its entry.
    pub recorded: bool,
}

impl HeldBefore {
    fn from_snapshot(snapshot: &Snapshot, device: usize) -> Self {
        let before = snapshot.live_after(device, None);
        Self {
            blocks: before.len() as u64,
            bytes: total(before.iter().map(|(.., bytes)| *bytes)),
            recorded: before.iter().any(|(_, _, stack, _)| snapshot.has_stack(*stack)),
        }
    }
}

/// A range that the program named (`record_function`, NVTX).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedRange {
    /// Its name.
    pub name: String,
    /// Number of its occurrences.
    pub count: u64,
}

/// The sums of a device. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsResult {
    /// Number of segments.
    pub segments: usize,
    /// Bytes in segments.
    pub reserved: u64,
    /// Bytes in blocks that are in use.
    pub allocated: u64,
    /// The same, with blocks that wait for another stream.
    pub active: u64,
    /// Bytes requested.
    pub requested: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Free bytes in segments that are partly in use.
    pub free_in_split_segments: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Share of the free bytes outside of the largest free block.
    pub fragmentation: f64,
}

/// Memory that a stack holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldResult {
    /// Bytes requested.
    pub bytes: u64,
    /// Number of blocks.
    pub allocations: u64,
    /// Stack with the innermost frame first: `FILE:LINE NAME`.
    pub stack: Vec<String>,
}

/// Memory that several stacks hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldSum {
    /// Number of stacks.
    pub stacks: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Number of blocks.
    pub allocations: u64,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentResult {
    /// Its first address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes in blocks that are in use.
    pub allocated: u64,
    /// The same, with blocks that wait for another stream.
    pub active: u64,
    /// Bytes requested.
    pub requested: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Its stream.
    pub stream: u64,
    /// Its pool.
    pub pool: (u64, u64),
    /// True if it is for small blocks.
    pub small: bool,
    /// True if it is expandable.
    pub expandable: bool,
}

/// The peak of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakOfTrace {
    /// Entry after which it was reached; null if that was before the first.
    pub event: Option<usize>,
    /// Bytes requested then.
    pub requested_bytes: u64,
    /// Stacks that held most then.
    pub by_stack: Vec<HeldResult>,
    /// Sum over all stacks then.
    #[serde(default)]
    pub in_all: HeldSum,
    /// Stack whose allocation reached it.
    #[serde(default)]
    pub made_by: Vec<String>,
}

/// A stack that holds ever more as steps go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrowingStack {
    /// Bytes of each block; of the largest, if they differ.
    pub bytes: u64,
    /// Bytes of the smallest block.
    #[serde(default)]
    pub smallest_bytes: u64,
    /// Additional blocks at the end of the last step.
    pub more: u64,
    /// Bytes that were added over the steps.
    #[serde(default)]
    pub more_bytes: u64,
    /// Number of steps.
    pub steps: u64,
    /// True if blocks of several steps were freed in one step, as Python's garbage collector frees reference cycles.
    #[serde(default)]
    pub freed_together: bool,
    /// Stack with the innermost frame first.
    pub stack: Vec<String>,
}

impl From<&Totals> for TotalsResult {
    fn from(totals: &Totals) -> Self {
        Self {
            segments: totals.segments,
            reserved: totals.reserved,
            allocated: totals.allocated,
            active: totals.active,
            requested: totals.requested,
            free: totals.free,
            free_in_split_segments: totals.free_split,
            largest_free: totals.largest_free,
            fragmentation: totals.fragmentation(),
        }
    }
}

impl HeldSum {
    fn from_held(held: &[Held]) -> Self {
        Self {
            stacks: held.len() as u64,
            bytes: total(held.iter().map(|held| held.bytes)),
            allocations: held.iter().map(|held| held.allocations).sum(),
        }
    }
}

impl SnapshotResult {
    /// Makes the result for a device.
    pub fn new(file: String, snapshot: &Snapshot, device: usize, looked: &Looked) -> Self {
        let top = looked.top.unwrap_or(TOP);
        let lines = |held: &Held| HeldResult {
            bytes: held.bytes,
            allocations: held.allocations,
            stack: snapshot.stack_lines(held.stack),
        };
        let first = |held: &[Held]| held.iter().take(top).map(lines).collect::<Vec<_>>();
        let growing = |growth: &Growth| GrowingStack {
            bytes: growth.largest,
            smallest_bytes: growth.smallest,
            more: growth.more,
            more_bytes: growth.more_bytes,
            steps: growth.steps,
            freed_together: growth.freed_together,
            stack: snapshot.stack_lines(growth.stack),
        };
        let (trace, held, leftovers) = (snapshot.trace(device), snapshot.held(device), snapshot.leftovers(device));
        let peak = snapshot.records_requests(device).then(|| snapshot.peak(device));
        let guesses = Guesses::from_snapshot(snapshot, device);
        let peak_entry = peak.as_ref().and_then(|peak| peak.event);
        let (moment, out_of_memory) = looked_at(snapshot, device, &guesses, looked, peak_entry);
        let peak = peak.map(|peak| {
            let stack = peak.event.and_then(|event| trace.get(event)).map(|event| event.stack);
            PeakOfTrace {
                event: peak.event,
                requested_bytes: peak.bytes,
                by_stack: first(&peak.by_stack),
                in_all: HeldSum::from_held(&peak.by_stack),
                made_by: stack.map(|stack| snapshot.stack_lines(stack)).unwrap_or_default(),
            }
        });
        Self {
            file,
            device,
            devices: snapshot.devices(),
            other_devices: OtherDevice::all_but(snapshot, device),
            unread_segments: snapshot.unread_segments.clone(),
            events: trace.len(),
            totals: (&snapshot.totals(device)).into(),
            moment: Some(moment),
            out_of_memory,
            step_ends: guesses.step_ends,
            steps_are_told: guesses.steps_are_told,
            ranges: ranges(snapshot, device),
            held: first(&held),
            held_in_all: HeldSum::from_held(&held),
            segments: snapshot.segments_of(device).map(|segment| of_segment(snapshot, segment)).collect(),
            before: HeldBefore::from_snapshot(snapshot, device),
            peak,
            left_over: first(&leftovers.live),
            left_over_in_all: HeldSum::from_held(&leftovers.live),
            growing: leftovers.course.growing.iter().take(top).map(growing).collect(),
            live_at_step_ends: leftovers.course.steps,
            looked: looked.clone(),
        }
    }
}

/// Returns the moment of interest: where memory ran out, else the peak; and why memory ran out.
fn looked_at(
    snapshot: &Snapshot,
    device: usize,
    guesses: &Guesses,
    looked: &Looked,
    peak: Option<usize>,
) -> (MomentResult, Option<SnapshotOom>) {
    let last = snapshot.trace(device).len().checked_sub(1).filter(|_| snapshot.records_requests(device));
    let range = looked.range.unwrap_or((0, usize::MAX));
    let mut out_of_memory = SnapshotOom::from_snapshot(snapshot, device, guesses, range);
    let (what, entry) = match (&out_of_memory, last) {
        (Some(oom), _) => ("out_of_memory", Some(oom.entry)),
        (None, None) => ("end", None),
        (None, Some(_)) => ("peak", looked.range.map_or(peak, |range| highest(snapshot, device, range))),
    };
    if let Some(oom) = out_of_memory.as_mut().filter(|_| last.is_some_and(|last| last < MAX_REPLAYED)) {
        // A trace that cannot be replayed is not tried.
        oom.what_if = what_if(snapshot, device, None).ok().map(|found| WhatIfResult::new(found, None));
    }
    let wanted = |stack| looked.matching.as_ref().is_none_or(|wanted| matches(snapshot, stack, wanted));
    let top = looked.top.unwrap_or(usize::MAX);
    // In this program's own histories the ranges are phases, which are shown anyway.
    let named = entry.filter(|_| !guesses.roles_are_told);
    let ranges = named.map(|entry| open_ranges(snapshot, device, entry)).unwrap_or_default();
    let moment = MomentResult::new(snapshot, guesses, what, entry, top, &wanted);
    (MomentResult { ranges, ..moment }, out_of_memory)
}

/// Returns the program's own ranges around an entry, the outermost first.
fn open_ranges(snapshot: &Snapshot, device: usize, entry: usize) -> Vec<String> {
    let Some(time) = snapshot.trace(device).get(entry).map(|event| event.time_us) else { return Vec::new() };
    let ranges = snapshot.time_ranges(device).into_iter();
    let open = ranges.filter(|range| range.from <= time && range.to.is_none_or(|to| to > time));
    open.filter(|range| is_the_programs(range.name)).take(MAX_OPEN).map(|range| range.name.into()).collect()
}

/// True unless a range belongs to PyTorch's optimizers, profiler or data loader.
fn is_the_programs(name: &str) -> bool {
    !name.starts_with("Optimizer.") && !name.starts_with("ProfilerStep#") && !name.starts_with("enumerate(DataLoader)#")
}

/// Maximum number of ranges that a moment shows.
const MAX_OPEN: usize = 8;

/// Returns the entry of a range after which most was held.
fn highest(snapshot: &Snapshot, device: usize, (from, to): (usize, usize)) -> Option<usize> {
    let live = snapshot.live_bytes(device).filter(|(at, _)| (from..=to).contains(at));
    // The first one, if there are several.
    live.max_by_key(|(at, bytes)| (*bytes, std::cmp::Reverse(*at))).map(|(at, _)| at)
}

/// Counts the ranges that the program named; PyTorch's own are left out.
fn ranges(snapshot: &Snapshot, device: usize) -> Vec<NamedRange> {
    let marks = snapshot.annotations.iter().filter(|mark| mark.start && mark.device as usize == device);
    let mut found: Vec<NamedRange> = Vec::new();
    for name in marks.map(|mark| snapshot.text(mark.name)).filter(|name| is_the_programs(name)) {
        match found.iter().position(|range| range.name == name) {
            Some(known) => found[known].count += 1,
            None if found.len() < MAX_RANGES => found.push(NamedRange { name: name.into(), count: 1 }),
            None => {}
        }
    }
    let labels = snapshot.trace(device).iter().map(|event| snapshot.text(event.metadata));
    if labels.clone().any(|label| !label.is_empty()) {
        let named = labels.filter(|label| !label.is_empty()).count() as u64;
        found.push(NamedRange { name: "(entries with metadata of the program)".into(), count: named });
    }
    found
}

/// Maximum number of names of ranges that are kept.
const MAX_RANGES: usize = 100;

fn of_segment(snapshot: &Snapshot, segment: &Segment) -> SegmentResult {
    SegmentResult {
        address: segment.address,
        bytes: segment.bytes,
        allocated: segment.allocated_bytes(),
        active: segment.active_bytes(),
        requested: segment.requested_bytes(),
        largest_free: segment.largest_free_bytes(),
        blocks: segment.blocks.len(),
        stream: snapshot.stream(segment.stream),
        pool: snapshot.pool(segment.pool),
        small: segment.small,
        expandable: segment.expandable,
    }
}
