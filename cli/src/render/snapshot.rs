//! Snapshots for people.

use lab::section::{Cell, Table};
use lab::snapshot::{Comparison, Held, Leftovers, MIN_STEPS, Peak, Snapshot, StackId, Totals, total};

use super::style::Style;
use super::{WIDTH, bytes, counted, grouped, table, wrapped};

/// What is shown of a snapshot.
pub(crate) struct Shown {
    /// The file.
    pub name: String,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The device.
    pub device: usize,
    /// Its memory at the end.
    pub totals: Totals,
    /// Who holds it, most first.
    pub held: Vec<Held>,
    /// The peak of the trace, if there is one.
    pub peak: Option<Peak>,
    /// What the trace leaves behind.
    pub leftovers: Leftovers,
    /// How much to list.
    pub top: usize,
}

/// Characters of a stack in a table.
const STACK_WIDTH: usize = 44;

/// Who holds what, at the end and at the peak; the segments.
pub(crate) fn tables(shown: &Shown) -> Vec<Table> {
    let Shown { snapshot, held, top, .. } = shown;
    let mut tables = vec![by_stack("Held at the end, by stack", snapshot, held, *top)];
    if let Some(peak) = &shown.peak {
        tables.push(by_stack("Held at the peak of the trace, by stack", snapshot, &peak.by_stack, *top));
    }
    tables.push(segments(shown));
    if !shown.leftovers.growing.is_empty() {
        tables.push(growing(shown));
    }
    tables
}

fn by_stack(title: &str, snapshot: &Snapshot, held: &[Held], top: usize) -> Table {
    let all = total(held.iter().map(|held| held.bytes));
    let row = |held: &Held| {
        vec![
            Cell::Bytes(held.bytes),
            Cell::Text(format!("{:.1} %", held.bytes as f64 / all.max(1) as f64 * 100.0)),
            Cell::Count(held.allocations),
            Cell::Text(brief(&snapshot.stack_lines(held.stack))),
        ]
    };
    let mut rows: Vec<Vec<Cell>> = held.iter().take(top).map(row).collect();
    if held.len() > top {
        let rest = &held[top..];
        let bytes = total(rest.iter().map(|held| held.bytes));
        rows.push(vec![
            Cell::Bytes(bytes),
            Cell::Text(format!("{:.1} %", bytes as f64 / all.max(1) as f64 * 100.0)),
            Cell::Count(rest.iter().map(|held| held.allocations).sum()),
            Cell::Text(format!("({} more)", counted(rest.len() as u64, "stack"))),
        ]);
    }
    let columns = ["requested", "share", "blocks", "by"].map(String::from).to_vec();
    Table { title: title.into(), columns, rows }
}

fn segments(shown: &Shown) -> Table {
    let mut all: Vec<_> = shown.snapshot.segments_of(shown.device).collect();
    all.sort_by_key(|segment| (std::cmp::Reverse(segment.bytes), segment.address));
    let row = |segment: &&lab::snapshot::Segment| {
        let kind = match (segment.small, segment.expandable) {
            (true, true) => "small, expandable",
            (true, false) => "small",
            (false, true) => "large, expandable",
            (false, false) => "large",
        };
        vec![
            Cell::Bytes(segment.bytes),
            Cell::Bytes(segment.allocated_bytes()),
            Cell::Bytes(segment.largest_free_bytes()),
            Cell::Count(segment.blocks.len() as u64),
            Cell::Text(kind.into()),
        ]
    };
    let columns = ["segment", "allocated", "largest free", "blocks", "kind"].map(String::from).to_vec();
    let title = match all.len() > shown.top {
        true => format!("The {} largest of {}", shown.top, counted(all.len() as u64, "segment")),
        false => "Segments".into(),
    };
    Table { title, columns, rows: all.iter().take(shown.top).map(row).collect() }
}

fn growing(shown: &Shown) -> Table {
    let row = |growth: &lab::snapshot::Growth| {
        vec![
            Cell::Bytes(growth.bytes.saturating_mul(growth.more) / growth.steps.max(1)),
            Cell::Bytes(growth.bytes),
            Cell::Count(growth.more),
            Cell::Text(brief(&shown.snapshot.stack_lines(growth.stack))),
        ]
    };
    let columns = ["per step", "each", "more", "by"].map(String::from).to_vec();
    let rows = shown.leftovers.growing.iter().take(shown.top).map(row).collect();
    Table { title: "More after every step: a leak".into(), columns, rows }
}

/// A stack in one cell: the innermost frame, and the first that is the program's own.
fn brief(lines: &[String]) -> String {
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

/// Everything, in 80 columns.
pub(crate) fn text(shown: &Shown, tables: &[Table], style: Style) -> String {
    let Shown { snapshot, device, .. } = shown;
    let trace = snapshot.trace(*device);
    let head = format!(
        "{}: device {device}, {}, {} in the trace",
        shown.name,
        counted(shown.totals.segments as u64, "segment"),
        match trace.len() {
            1 => "1 entry".to_string(),
            n => format!("{} entries", grouped(n as u64)),
        }
    );
    let mut out = format!("{}\n", style.bold(&wrapped(&head, WIDTH, 2)));
    out += &paragraph(&totals(&shown.totals));
    if let Some(peak) = &shown.peak {
        let when = peak.event.map_or("before the trace began".into(), |event| {
            format!(
                "after entry {} of {}{}",
                grouped(event as u64),
                grouped(trace.len() as u64),
                made(snapshot, trace[event].stack)
            )
        });
        out += &paragraph(&format!("Peak of what was requested: {}, {when}.", bytes::both(peak.bytes)));
    }
    out += "\n";
    for part in tables.iter().filter(|part| !part.rows.is_empty()) {
        out += &format!("{}\n", table::titled(part, style));
    }
    out + &paragraph(&left(shown))
}

fn made(snapshot: &Snapshot, stack: StackId) -> String {
    if snapshot.has_stack(stack) { format!(", by {}", brief(&snapshot.stack_lines(stack))) } else { String::new() }
}

fn paragraph(text: &str) -> String {
    format!("{}\n", wrapped(text, WIDTH, 2))
}

fn totals(totals: &Totals) -> String {
    let waiting = match totals.active.saturating_sub(totals.allocated) {
        0 => String::new(),
        waiting => format!("{} freed but waiting for another stream, ", bytes::both(waiting)),
    };
    let mut text = format!(
        "Reserved {}: {} allocated, {waiting}{} free, {} of that in one piece",
        bytes::both(totals.reserved),
        bytes::both(totals.allocated),
        bytes::both(totals.free),
        bytes::short(totals.largest_free)
    );
    if totals.free > 0 {
        let stuck = bytes::short(totals.free_split);
        text += &format!(
            " ({:.0} % is not); {stuck} lie in segments that are partly in use",
            totals.fragmentation() * 100.0
        );
    }
    text + "."
}

/// What the trace leaves behind.
fn left(shown: &Shown) -> String {
    let leftovers = &shown.leftovers;
    let live = total(leftovers.live.iter().map(|held| held.bytes));
    let count: u64 = leftovers.live.iter().map(|held| held.allocations).sum();
    if shown.peak.is_none() {
        return "Nothing was recorded: torch.cuda.memory._record_memory_history() starts recording, and with stacks."
            .into();
    }
    let mut text =
        format!("Made within the trace and live at its end: {}, {}.", counted(count, "block"), bytes::both(live));
    match leftovers.steps.as_slice() {
        [] => text += " The recording does not tell steps, so that growth per step is not known.",
        [_] | [_, _] => text += " Too few steps to tell growth.",
        [_, steps @ ..] => {
            let growth = (steps.last().copied().unwrap_or(0) as i64).saturating_sub(steps[0] as i64);
            text += &format!(
                " Live at the ends of {}: {}; {}.",
                counted(leftovers.steps.len() as u64, "step"),
                leftovers.steps.iter().rev().take(4).rev().map(|b| bytes::short(*b)).collect::<Vec<_>>().join(", "),
                match growth {
                    0 => "no growth".to_string(),
                    _ => format!("{} since the second", bytes::signed(growth)),
                }
            );
            if leftovers.steps.len() < MIN_STEPS {
                text += &format!(" A leak is told from {MIN_STEPS} steps on.");
            }
        }
    }
    text
}

/// The stacks that hold more or less than before.
pub(crate) fn comparison_tables(comparison: &Comparison, top: usize) -> Vec<Table> {
    let row = |change: &lab::snapshot::Change| {
        vec![
            Cell::Bytes(change.bytes.0),
            Cell::Bytes(change.bytes.1),
            Cell::Difference((change.bytes.1 as i64).saturating_sub(change.bytes.0 as i64)),
            Cell::Text(brief(&change.stack)),
        ]
    };
    let columns = ["before", "after", "difference", "by"].map(String::from).to_vec();
    let rows = comparison.changes.iter().take(top).map(row).collect();
    vec![Table { title: "Who holds more, or less".into(), columns, rows }]
}

/// Two snapshots, in 80 columns.
pub(crate) fn comparison(
    comparison: &Comparison,
    names: &[String; 2],
    device: usize,
    tables: &[Table],
    style: Style,
) -> String {
    let mut out =
        format!("{}\n", style.bold(&wrapped(&format!("{} → {}, device {device}", names[0], names[1]), WIDTH, 2)));
    let (before, after) = &comparison.totals;
    for (what, one, two) in [
        ("reserved", before.reserved, after.reserved),
        ("allocated", before.allocated, after.allocated),
        ("active", before.active, after.active),
        ("requested", before.requested, after.requested),
        ("free", before.free, after.free),
    ] {
        let difference = bytes::signed((two as i64).saturating_sub(one as i64));
        out += &paragraph(&format!("{what}: {} → {} ({difference})", bytes::both(one), bytes::both(two)));
    }
    out += &paragraph(&format!(
        "Segments only in the first: {} ({}); only in the second: {} ({}).",
        comparison.segments.0,
        bytes::short(comparison.segment_bytes.0),
        comparison.segments.1,
        bytes::short(comparison.segment_bytes.1)
    ));
    if comparison.changes.is_empty() {
        return out + "No stack holds more or less.\n";
    }
    for part in tables {
        out += &format!("\n{}", table::titled(part, style));
    }
    out
}
