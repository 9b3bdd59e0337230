//! A snapshot in words: the answer first, then who held what; the rest in details.

use lab_base::figures::{both, counted, grouped, percent, short, signed};
use lab_base::section::{Cell, Section, Table};
use lab_traces::snapshot::{FrameText, MIN_STEPS, total};
use lab_traces::stacks::Place;

use super::{
    GrowingStack, HeldBefore, HeldResult, HeldSum, NamedRange, PeakOfTrace, SegmentResult, SnapshotResult, TOP,
    TotalsResult,
};
use crate::findings::file_name;
use crate::{Findings, OtherDevice};

/// Characters of a stack in a table.
const STACK_WIDTH: usize = 90;

/// Lines of the program that a screen shows.
const LINES: usize = 6;

/// Memory of several blocks, which is left behind.
const LEAKS: fn(&GrowingStack) -> bool = |growth| !growth.freed_together && growth.more > 0;
/// Memory that is made anew in every step, and larger.
const LARGER: fn(&GrowingStack) -> bool = |growth| !growth.freed_together && growth.more == 0;
/// Memory of which several steps' blocks are freed at once.
const TOGETHER: fn(&GrowingStack) -> bool = |growth| growth.freed_together;

impl Findings for SnapshotResult {
    const SCHEMA: &'static str = "vramlab-snapshot-1";

    fn title(&self) -> String {
        let name = file_name(&self.file);
        match (&self.out_of_memory, &self.peak) {
            (Some(oom), _) => format!("{name}: out of memory, {}", oom.cause()),
            (None, Some(peak)) => format!("{name}: {} at the peak", short(peak.requested_bytes)),
            (None, None) => {
                format!("{name}: {} reserved, {} allocated", short(self.totals.reserved), short(self.totals.allocated))
            }
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section::Answer(self.answer())];
        sections.extend(OtherDevice::in_words(self.device, &self.other_devices).map(Section::Note));
        if let Some(why) = &self.unread_segments {
            let text = format!("The segments of the file were left out ({why}). All figures are those of its trace.");
            sections.push(Section::Warning(text));
        }
        if self.peak.is_none() {
            sections.push(Section::Note(sums(&self.totals)));
        }
        if let Some(moment) = &self.moment {
            sections.push(Section::List(moment.table(&self.table_title(), self.looked.top.unwrap_or(LINES))));
            sections.push(Section::Note(moment.shares()));
            sections.extend(moment.in_vain().map(Section::Note));
            if moment.has_no_lines() && self.peak.is_some() {
                let how = "torch.cuda.memory._record_memory_history(), with its defaults, records them";
                sections.push(Section::Note(format!("No stacks were recorded of these: {how}.")));
            }
        }
        sections.extend(self.begins_in_mid_run().map(Section::Note));
        if let Some(oom) = &self.out_of_memory {
            sections.push(self.proposal(oom));
        } else if self.unread_segments.is_some() {
            sections.push(Section::Note("Stacks, steps: --full.".into()));
        } else if self.peak.is_some() {
            let TotalsResult { reserved, allocated, .. } = self.totals;
            let end = format!("At the end: {} reserved, {} allocated.", short(reserved), short(allocated));
            sections.push(Section::Note(format!("{end} Stacks, segments, steps: --full.")));
        }
        sections.extend(self.growth());
        if self.peak.is_none() {
            sections.push(Section::Note(self.left()));
        }
        sections.extend(self.details());
        sections
    }

    fn table(&self) -> Option<Table> {
        self.moment.as_ref().map(|moment| moment.table(&self.table_title(), usize::MAX))
    }
}

impl SnapshotResult {
    /// Says what to do about a failed request.
    fn proposal(&self, oom: &super::SnapshotOom) -> Section {
        match &oom.what_if {
            None => Section::Note(
                "The recording is long, or cannot be replayed: `vramlab tune` tries settings of the allocator.".into(),
            ),
            Some(what_if) if oom.verdict == "limited" && what_if.recorded.is_some() && what_if.best().is_none() => {
                let why =
                    "The recording does not say where the limit lies, so what other settings would do is not known.";
                Section::Note(why.into())
            }
            Some(what_if) => what_if.section(Some(&self.file), self.peak.as_ref().map(|peak| peak.requested_bytes)),
        }
    }

    fn answer(&self) -> String {
        let Some(moment) = &self.moment else { return sums(&self.totals) };
        match (&self.out_of_memory, &self.peak) {
            (Some(oom), _) => oom.in_words(&moment.part(), self.events),
            (None, Some(peak)) if self.looked.range.is_none() => self.peak_in_words(peak, &moment.part()),
            (None, Some(_)) => format!(
                "The peak of these requests is after entry {}{}.",
                moment.entry.map_or("none".into(), |entry| grouped(entry as u64, ' ')),
                moment.part()
            ),
            (None, None) => format!("Held at the end: {}.", both(moment.requested_bytes)),
        }
    }

    fn table_title(&self) -> String {
        let when = match self.moment.as_ref().map(|moment| moment.what.as_str()) {
            Some("out_of_memory") => "Held then",
            Some("end") => "Held at the end",
            _ => "Held at the peak",
        };
        match &self.looked.matching {
            Some(wanted) => format!("{when}, by line, where {wanted} is in the stack"),
            None => format!("{when}, by line of the program"),
        }
    }

    /// Details, for few readers.
    fn details(&self) -> Vec<Section> {
        let folded = |title: &str, sections| Section::Details { title: title.into(), sections };
        let entries = match self.events {
            1 => "1 entry".to_string(),
            n => format!("{} entries", grouped(n as u64, ' ')),
        };
        let segments = counted(self.totals.segments as u64, "segment");
        let what = format!("{}: device {}, {segments}, {entries} in the trace.", self.file, self.device);
        let mut out = vec![folded("The recording", vec![Section::Note(what)])];
        if let Some(moment) = &self.moment {
            let rows = moment.by_line.iter().take(self.looked.top.unwrap_or(TOP)).map(|line| line.with_callers());
            let table = Table::new("", &["bytes", "blocks", "for", "by"], rows.collect());
            out.push(folded("The lines that led there", vec![Section::Table(table)]));
        }
        let mut steps = vec![Section::Note(self.steps())];
        steps.extend(self.peak.is_some().then(|| Section::Note(self.left())));
        out.push(folded("Steps and ranges", [steps, vec![Section::Table(self.named())]].concat()));
        let mut by_stack_sections =
            vec![Section::Table(by_stack("Held at the end, by stack", &self.held, self.held_in_all))];
        let at_peak =
            |peak: &PeakOfTrace| by_stack("Held at the peak of the trace, by stack", &peak.by_stack, peak.in_all);
        by_stack_sections.extend(self.peak.iter().map(at_peak).map(Section::Table));
        out.push(folded("By stack", by_stack_sections));
        out.push(folded("Segments", vec![Section::Note(sums(&self.totals)), Section::Table(self.largest_segments())]));
        out.extend(self.out_of_memory.iter().filter_map(|oom| Some(oom.what_if.as_ref()?.details())));
        out
    }

    fn steps(&self) -> String {
        let how = if self.steps_are_told { "as the recording says" } else { "as stacks suggest" };
        match self.step_ends.len() {
            0 => "Steps of training are not known: no range or stack of an optimizer, and no backward pass.".into(),
            n => format!("{} of training ended within the trace, {how}.", counted(n as u64, "step")),
        }
    }

    fn named(&self) -> Table {
        let row = |range: &NamedRange| vec![Cell::Text(range.name.clone()), Cell::Count(range.count)];
        Table::new("Ranges that the program named", &["name", "times"], self.ranges.iter().map(row).collect())
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
        let title = match all.len() > self.top() {
            true => format!("The {} largest of {}", self.top(), counted(all.len() as u64, "segment")),
            false => "Segments".into(),
        };
        let columns = ["segment", "allocated", "largest free", "blocks", "kind"];
        Table::new(title, &columns, all.iter().take(self.top()).map(row).collect())
    }

    /// Lists what grows: leaks, and apart from them what is freed at once now and then.
    fn growth(&self) -> Vec<Section> {
        let row = |growth: &&GrowingStack| {
            let size = match growth.smallest_bytes == growth.bytes {
                true => short(growth.bytes),
                false => format!("{} to {}", short(growth.smallest_bytes), short(growth.bytes)),
            };
            vec![
                Cell::Bytes(growth.more_bytes / growth.steps.max(1)),
                Cell::Text(size),
                Cell::Count(growth.more),
                Cell::Text(brief(&growth.stack)),
            ]
        };
        let columns = ["per step", "each", "more", "by"];
        let table = |title: &str, which: fn(&GrowingStack) -> bool| {
            let rows: Vec<_> = self.growing.iter().filter(|growth| which(growth)).map(|growth| row(&growth)).collect();
            (!rows.is_empty()).then(|| Section::List(Table::new(title, &columns, rows)))
        };
        let cycles = "Grows until several steps' blocks are freed at once: reference cycles, or a list that is emptied";
        let larger = "Larger in every step: a tensor that grows, or larger batches";
        let tables = [table("More as steps go on: a leak", LEAKS), table(larger, LARGER), table(cycles, TOGETHER)];
        tables.into_iter().flatten().collect()
    }

    /// Formats the peak in a sentence.
    fn peak_in_words(&self, peak: &PeakOfTrace, part: &str) -> String {
        let by = if peak.made_by.is_empty() { String::new() } else { format!(", by {}", brief(&peak.made_by)) };
        let when = peak.event.map_or("as the trace began".into(), |event| {
            format!("after entry {} of {}{part}{by}", grouped(event as u64, ' '), grouped(self.events as u64, ' '))
        });
        format!("Peak of what was requested: {}, {when}.", both(peak.requested_bytes))
    }

    /// Says that a higher peak may lie before the trace.
    fn begins_in_mid_run(&self) -> Option<String> {
        let HeldBefore { bytes, blocks, recorded } = self.before;
        (self.peak.is_some() && blocks > 0).then(|| {
            let held = format!("{} in {}", short(bytes), counted(blocks, "block"));
            let why = if recorded {
                "earlier entries were overwritten (max_entries), cleared, or lie in an earlier recording"
            } else {
                "the recording was started late"
            };
            format!("The trace begins with {held} held: {why}. What came before it is not counted.")
        })
    }

    /// Says why the trace has no requests.
    fn why_no_requests(&self) -> &'static str {
        if self.before.recorded {
            "The trace has no requests: the recording was stopped before the file was written, or recorded states alone. \
             torch.cuda.memory._record_memory_history(), with its defaults, records requests."
        } else {
            "Nothing was recorded: torch.cuda.memory._record_memory_history() starts recording, with stacks."
        }
    }

    /// Formats the allocations that remain at the end of the trace.
    fn left(&self) -> String {
        if self.peak.is_none() {
            return self.why_no_requests().into();
        }
        let HeldSum { bytes, allocations, .. } = self.left_over_in_all;
        let mut text =
            format!("Made within the trace and live at its end: {}, {}.", counted(allocations, "block"), both(bytes));
        let steps = &self.live_at_step_ends;
        match steps.as_slice() {
            [] => text += " The recording does not show steps, so growth per step is not known.",
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
                    text += &format!(" A leak can be told after {MIN_STEPS} steps.");
                }
            }
        }
        text
    }

    /// Rows of a table.
    fn top(&self) -> usize {
        self.looked.top.unwrap_or(TOP)
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

/// Formats a stack for a cell: the program's line, and PyTorch's operator there.
pub(crate) fn brief(lines: &[String]) -> String {
    if lines.is_empty() {
        return "(no stack recorded)".into();
    }
    let frame = |line: &'_ String| -> Option<(String, i64, String)> {
        let (place, name) = line.split_once(' ').unwrap_or((line, ""));
        let (file, number) = place.rsplit_once(':')?;
        Some((file.into(), number.parse().ok()?, name.into()))
    };
    let frames: Vec<_> = lines.iter().filter_map(frame).collect();
    let place = Place::of_frames(frames.iter().map(|(filename, line, name)| FrameText { filename, line: *line, name }));
    let text = place.with_operator();
    match text.char_indices().nth(STACK_WIDTH) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// Formats the sums in a sentence.
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
        text += &format!(" ({share:.0} % is in smaller ones); {stuck} lie in segments that are partly in use");
    }
    text + "."
}
