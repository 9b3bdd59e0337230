//! A snapshot of PyTorch's (`vramlab-snapshot-1`): who holds memory at its end and at the peak of its trace, and what the trace leaves behind.

use serde::{Deserialize, Serialize};

use super::findings::Findings;
use crate::figures::{both, counted, grouped, percent, short, signed};
use crate::section::{Cell, Section, Table};
use crate::snapshot::{Growth, Held, MIN_STEPS, Segment, Snapshot, Totals, total};

/// Characters of a stack in a table.
const STACK_WIDTH: usize = 44;

/// A device's memory in a snapshot. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotResult {
    /// The file.
    pub file: String,
    /// Which device.
    pub device: usize,
    /// How many there are.
    pub devices: usize,
    /// Entries of its trace.
    pub events: usize,
    /// Its memory at the end.
    pub totals: TotalsResult,
    /// Who holds most of it.
    pub held: Vec<HeldResult>,
    /// What all hold.
    #[serde(default)]
    pub held_in_all: HeldSum,
    /// Its segments.
    pub segments: Vec<SegmentResult>,
    /// The peak of the trace; null without one.
    pub peak: Option<PeakOfTrace>,
    /// Made within the trace and live at its end.
    pub left_over: Vec<HeldResult>,
    /// What all of that is.
    #[serde(default)]
    pub left_over_in_all: HeldSum,
    /// What was live when each step ended, where the recording tells steps.
    pub live_at_step_ends: Vec<u64>,
    /// What is more after every step.
    pub growing: Vec<GrowingStack>,
    /// How many rows tables have.
    #[serde(skip, default = "usize::max_value")]
    pub top: usize,
}

/// The sums of a device. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsResult {
    /// How many segments.
    pub segments: usize,
    /// Their bytes.
    pub reserved: u64,
    /// In blocks that are in use.
    pub allocated: u64,
    /// With those that wait for another stream.
    pub active: u64,
    /// What was asked for.
    pub requested: u64,
    /// What is free.
    pub free: u64,
    /// Of that, in segments that are partly in use.
    pub free_in_split_segments: u64,
    /// The largest free piece.
    pub largest_free: u64,
    /// The share of what is free that is not in that piece.
    pub fragmentation: f64,
}

/// What a stack holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldResult {
    /// Bytes asked for.
    pub bytes: u64,
    /// Blocks.
    pub allocations: u64,
    /// The innermost frame first: `FILE:LINE NAME`.
    pub stack: Vec<String>,
}

/// What several stacks hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldSum {
    /// How many stacks.
    pub stacks: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Blocks.
    pub allocations: u64,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentResult {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// In blocks that are in use.
    pub allocated: u64,
    /// With those that wait for another stream.
    pub active: u64,
    /// What was asked for.
    pub requested: u64,
    /// Its largest free piece.
    pub largest_free: u64,
    /// How many blocks it is cut into.
    pub blocks: usize,
    /// The stream that it belongs to.
    pub stream: u64,
    /// The pool that it belongs to.
    pub pool: (u64, u64),
    /// Whether it is one for small blocks.
    pub small: bool,
    /// Whether it can grow.
    pub expandable: bool,
}

/// The peak of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakOfTrace {
    /// The entry after which it was there; null for what was there before the first.
    pub event: Option<usize>,
    /// Bytes asked for then.
    pub requested_bytes: u64,
    /// Who held most then.
    pub by_stack: Vec<HeldResult>,
    /// What all held.
    #[serde(default)]
    pub in_all: HeldSum,
    /// Who reached it.
    #[serde(default)]
    pub made_by: Vec<String>,
}

/// What is more after every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrowingStack {
    /// Bytes of each block.
    pub bytes: u64,
    /// Blocks more at the end of the trace.
    pub more: u64,
    /// Steps.
    pub steps: u64,
    /// The innermost frame first.
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
    fn of(held: &[Held]) -> Self {
        Self {
            stacks: held.len() as u64,
            bytes: total(held.iter().map(|held| held.bytes)),
            allocations: held.iter().map(|held| held.allocations).sum(),
        }
    }
}

impl SnapshotResult {
    /// Of a device; of stacks the first `top`.
    pub fn of(file: String, snapshot: &Snapshot, device: usize, top: usize) -> Self {
        let lines = |held: &Held| HeldResult {
            bytes: held.bytes,
            allocations: held.allocations,
            stack: snapshot.stack_lines(held.stack),
        };
        let first = |held: &[Held]| held.iter().take(top).map(lines).collect::<Vec<_>>();
        let growing = |growth: &Growth| GrowingStack {
            bytes: growth.bytes,
            more: growth.more,
            steps: growth.steps,
            stack: snapshot.stack_lines(growth.stack),
        };
        let (trace, held, leftovers) = (snapshot.trace(device), snapshot.held(device), snapshot.leftovers(device));
        let peak = (!trace.is_empty()).then(|| {
            let peak = snapshot.peak(device);
            let stack = peak.event.and_then(|event| trace.get(event)).map(|event| event.stack);
            PeakOfTrace {
                event: peak.event,
                requested_bytes: peak.bytes,
                by_stack: first(&peak.by_stack),
                in_all: HeldSum::of(&peak.by_stack),
                made_by: stack.map(|stack| snapshot.stack_lines(stack)).unwrap_or_default(),
            }
        });
        Self {
            file,
            device,
            devices: snapshot.devices(),
            events: trace.len(),
            totals: (&snapshot.totals(device)).into(),
            held: first(&held),
            held_in_all: HeldSum::of(&held),
            segments: snapshot.segments_of(device).map(|segment| of_segment(snapshot, segment)).collect(),
            peak,
            left_over: first(&leftovers.live),
            left_over_in_all: HeldSum::of(&leftovers.live),
            growing: leftovers.growing.iter().take(top).map(growing).collect(),
            live_at_step_ends: leftovers.steps,
            top,
        }
    }

    fn largest_segments(&self) -> Table {
        let mut all: Vec<&SegmentResult> = self.segments.iter().collect();
        all.sort_by_key(|segment| (std::cmp::Reverse(segment.bytes), segment.address));
        let row = |segment: &&SegmentResult| {
            let size = if segment.small { "small" } else { "large" };
            let kind = if segment.expandable { format!("{size}, expandable") } else { size.into() };
            vec![
                Cell::Bytes(segment.bytes),
                Cell::Bytes(segment.allocated),
                Cell::Bytes(segment.largest_free),
                Cell::Count(segment.blocks as u64),
                Cell::Text(kind),
            ]
        };
        let title = match all.len() > self.top {
            true => format!("The {} largest of {}", self.top, counted(all.len() as u64, "segment")),
            false => "Segments".into(),
        };
        let columns = ["segment", "allocated", "largest free", "blocks", "kind"];
        Table::new(title, &columns, all.iter().take(self.top).map(row).collect())
    }

    fn growth(&self) -> Table {
        let row = |growth: &GrowingStack| {
            vec![
                Cell::Bytes(growth.bytes.saturating_mul(growth.more) / growth.steps.max(1)),
                Cell::Bytes(growth.bytes),
                Cell::Count(growth.more),
                Cell::Text(brief(&growth.stack)),
            ]
        };
        let columns = ["per step", "each", "more", "by"];
        Table::new("More after every step: a leak", &columns, self.growing.iter().map(row).collect())
    }

    /// The peak in a sentence.
    fn peak_in_words(&self, peak: &PeakOfTrace) -> String {
        let by = if peak.made_by.is_empty() { String::new() } else { format!(", by {}", brief(&peak.made_by)) };
        let when = peak.event.map_or("before the trace began".into(), |event| {
            format!("after entry {} of {}{by}", grouped(event as u64, ' '), grouped(self.events as u64, ' '))
        });
        format!("Peak of what was requested: {}, {when}.", both(peak.requested_bytes))
    }

    /// What the trace leaves behind.
    fn left(&self) -> String {
        if self.peak.is_none() {
            return "Nothing was recorded: torch.cuda.memory._record_memory_history() starts recording, and with stacks."
                .into();
        }
        let HeldSum { bytes, allocations, .. } = self.left_over_in_all;
        let mut text =
            format!("Made within the trace and live at its end: {}, {}.", counted(allocations, "block"), both(bytes));
        let steps = &self.live_at_step_ends;
        match steps.as_slice() {
            [] => text += " The recording does not tell steps, so that growth per step is not known.",
            [_] | [_, _] => text += " Too few steps to tell growth.",
            [_, second, .., last] => {
                let growth = match (*last as i64).saturating_sub(*second as i64) {
                    0 => "no growth".to_string(),
                    growth => format!("{} since the second", signed(growth)),
                };
                let live: Vec<String> = steps[steps.len().saturating_sub(4)..].iter().map(|b| short(*b)).collect();
                let ends = counted(steps.len() as u64, "step");
                text += &format!(" Live at the ends of {ends}: {}; {growth}.", live.join(", "));
                if steps.len() < MIN_STEPS {
                    text += &format!(" A leak is told from {MIN_STEPS} steps on.");
                }
            }
        }
        text
    }
}

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

fn by_stack(title: &str, held: &[HeldResult], all: HeldSum) -> Table {
    let share = |bytes: u64| Cell::Text(percent(bytes as f64 / all.bytes.max(1) as f64));
    let row = |bytes, allocations, by| vec![Cell::Bytes(bytes), share(bytes), Cell::Count(allocations), Cell::Text(by)];
    let mut rows: Vec<Vec<Cell>> =
        held.iter().map(|held| row(held.bytes, held.allocations, brief(&held.stack))).collect();
    let rest = all.stacks.saturating_sub(held.len() as u64);
    if rest > 0 {
        let bytes = all.bytes.saturating_sub(total(held.iter().map(|held| held.bytes)));
        let allocations = all.allocations.saturating_sub(held.iter().map(|held| held.allocations).sum());
        rows.push(row(bytes, allocations, format!("({} more)", counted(rest, "stack"))));
    }
    Table::new(title, &["requested", "share", "blocks", "by"], rows)
}

/// A stack in one cell: the innermost frame, and the first that is the program's own.
pub(super) fn brief(lines: &[String]) -> String {
    let short = |line: &String| {
        let (place, name) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        let file = place.rsplit('/').next().unwrap_or(place);
        // Our own frames have no lines.
        match file.strip_suffix(":0") {
            Some(_) => name.to_string(),
            None => format!("{name} ({file})"),
        }
    };
    let Some(inner) = lines.first() else { return "(no stack recorded)".into() };
    let library = |line: &&String| line.contains("site-packages/") || line.starts_with("??");
    let own = lines.iter().skip(1).find(|line| !library(line) && library(&inner) || line.starts_with("module:"));
    let text = match own {
        Some(own) => format!("{} ← {}", short(inner), short(own)),
        None => short(inner),
    };
    match text.char_indices().nth(STACK_WIDTH) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// The sums in a sentence.
fn sums(totals: &TotalsResult) -> String {
    let waiting = match totals.active.saturating_sub(totals.allocated) {
        0 => String::new(),
        waiting => format!("{} freed but waiting for another stream, ", both(waiting)),
    };
    let mut text = format!(
        "Reserved {}: {} allocated, {waiting}{} free, {} of that in one piece",
        both(totals.reserved),
        both(totals.allocated),
        both(totals.free),
        short(totals.largest_free)
    );
    if totals.free > 0 {
        let stuck = short(totals.free_in_split_segments);
        let share = totals.fragmentation * 100.0;
        text += &format!(" ({share:.0} % is not); {stuck} lie in segments that are partly in use");
    }
    text + "."
}

impl Findings for SnapshotResult {
    const SCHEMA: &'static str = "vramlab-snapshot-1";

    fn title(&self) -> String {
        let entries = match self.events {
            1 => "1 entry".to_string(),
            n => format!("{} entries", grouped(n as u64, ' ')),
        };
        let segments = counted(self.totals.segments as u64, "segment");
        format!("{}: device {}, {segments}, {entries} in the trace", self.file, self.device)
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section::Answer(sums(&self.totals))];
        sections.extend(self.peak.iter().map(|peak| Section::Note(self.peak_in_words(peak))));
        sections.push(Section::Table(by_stack("Held at the end, by stack", &self.held, self.held_in_all)));
        let at_peak =
            |peak: &PeakOfTrace| by_stack("Held at the peak of the trace, by stack", &peak.by_stack, peak.in_all);
        sections.extend(self.peak.iter().map(at_peak).map(Section::Table));
        sections.push(Section::Table(self.largest_segments()));
        sections.push(Section::Table(self.growth()));
        sections.push(Section::Note(self.left()));
        sections
    }
}
