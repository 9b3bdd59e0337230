//! Replays for people.

use lab::experiments::{Cell, Table};
use lab::replay::{Certificate, Figures, LowerBound, Trace};

use super::chart::{self, Point};
use super::style::Style;
use super::{WIDTH, bytes, counted, grouped, table, wrapped};
use lab::snapshot::Agreement;
use serde_json::{Map, Value};

/// A policy's name and what it took.
pub(crate) type Taken = (&'static str, Figures);

/// A recording and what was made of it.
pub(crate) struct Replayed {
    /// The recording.
    pub trace: Trace,
    /// What no allocator can do without.
    pub bound: LowerBound,
    /// The settings in force.
    pub settings: Map<String, Value>,
    /// What each policy took; the first is the main one.
    pub policies: Vec<Taken>,
    /// Of a snapshot: whether its own settings reproduce it.
    pub self_check: Option<Agreement>,
}

/// But for rounding, this is the program's, not the policy's.
const FINAL_ALLOCATED: &str = "final allocated";

/// The policies side by side: the main table, and what they asked of the driver.
pub(crate) fn tables(replayed: &Replayed) -> Vec<Table> {
    vec![memory(replayed), driver(replayed)]
}

fn memory(replayed: &Replayed) -> Table {
    let Replayed { trace, bound, policies, .. } = replayed;
    let columns = [
        "policy",
        "peak reserved",
        "above bound",
        "peak allocated",
        "final reserved",
        FINAL_ALLOCATED,
        "unused at peak",
    ];
    let row = |(name, figures): &Taken| {
        vec![
            Cell::Text(name.to_string()),
            Cell::Bytes(figures.peak_reserved),
            Cell::Text(percent(figures.peak_reserved as f64 / bound.bytes.max(1) as f64 - 1.0)),
            Cell::Bytes(figures.peak_allocated),
            Cell::Bytes(figures.final_reserved),
            Cell::Bytes(figures.final_allocated),
            Cell::Text(percent(figures.unused_share_at_peak())),
        ]
    };
    Table {
        title: format!("Memory of {}", trace.name),
        columns: columns.map(String::from).to_vec(),
        rows: policies.iter().map(row).collect(),
    }
}

fn driver(replayed: &Replayed) -> Table {
    let columns = ["policy", "driver calls", "taken", "given back", "refused", "retries", "failed", "ns per op"];
    let row = |(name, figures): &Taken| {
        let calls = &figures.driver;
        let (taken, given_back) = (calls.segment_allocs + calls.maps, calls.segment_frees + calls.unmaps);
        let time = figures.nanoseconds_per_operation(&replayed.trace).round() as u64;
        let counts = [calls.total(), taken, given_back, calls.refusals, figures.retries, figures.out_of_memory, time];
        std::iter::once(Cell::Text(name.to_string())).chain(counts.map(Cell::Count)).collect()
    };
    Table {
        title: "Segments and pages asked of the driver; retries, failed requests, time".into(),
        columns: columns.map(String::from).to_vec(),
        rows: replayed.policies.iter().map(row).collect(),
    }
}

/// Everything, in 80 columns.
pub(crate) fn text(replayed: &Replayed, tables: &[Table], style: Style) -> String {
    let Replayed { trace, bound, policies, .. } = replayed;
    let mut out = format!("{}\n", style.bold(&wrapped(&heading(replayed), WIDTH, 2)));
    let sentence = format!(
        "Lower bound of any allocator: {}, which {} hold after operation {}.",
        bytes::both(bound.bytes),
        counted(bound.allocations, "allocation"),
        grouped(bound.operation as u64)
    );
    out += &format!("{}\n\n", wrapped(&sentence, WIDTH, 2));
    for part in tables {
        out += &format!("{}\n", table::titled(&readable(part), style));
    }
    for (name, figures) in policies {
        for sentence in remarks(name, figures, policies.len() == 1) {
            out += &format!("{}\n", wrapped(&sentence, WIDTH, 2));
        }
    }
    let last = grouped(trace.operations().len() as u64);
    match policies.as_slice() {
        [(_, figures)] => out += &over_time(figures, &last, style),
        several => out += &side_by_side(several, &last, style),
    }
    out
}

/// Without what is the same under all policies.
fn readable(table: &Table) -> Table {
    let same = table.columns.iter().position(|name| name == FINAL_ALLOCATED).filter(|_| table.rows.len() > 1);
    let without =
        |cells: &[Cell]| cells.iter().enumerate().filter(|(i, _)| Some(*i) != same).map(|(_, c)| c.clone()).collect();
    let columns = table.columns.iter().enumerate().filter(|(i, _)| Some(*i) != same).map(|(_, name)| name.clone());
    Table {
        title: table.title.clone(),
        columns: columns.collect(),
        rows: table.rows.iter().map(|row| without(row)).collect(),
    }
}

fn heading(replayed: &Replayed) -> String {
    let (trace, settings) = (&replayed.trace, &replayed.settings);
    let mut text = format!(
        "{}: {}, {} ({})",
        trace.name,
        counted(trace.operations().len() as u64, "operation"),
        counted(trace.allocations() as u64, "allocation"),
        trace.format
    );
    if let Some(bytes) = settings.get("memory-limit").and_then(|value| value.as_u64()) {
        text += &format!("; device of {}", bytes::both(bytes));
    }
    if let Some(fraction) = settings.get("memory-fraction").and_then(|value| value.as_f64()) {
        text += &format!(", of which {fraction} may be used");
    }
    if let Some(conf) = settings.get("alloc-conf").and_then(|value| value.as_str()).filter(|conf| !conf.is_empty()) {
        text += &format!("; {conf}");
    }
    text
}

/// What the tables do not say.
fn remarks(name: &str, figures: &Figures, alone: bool) -> Vec<String> {
    let mut out = Vec::new();
    if let Some((operation, size)) = figures.first_failure {
        out.push(format!(
            "{name}: {} that the recorded program got; the first is of {}, at operation {}.",
            counted(figures.newly_failed, "failed request"),
            bytes::both(size),
            grouped(operation as u64)
        ));
    }
    if let Some(message) = &figures.last_message {
        out.push(format!("{name}: the last failure in PyTorch's words: {message}"));
    }
    if let Some(plan) = &figures.certificate {
        out.push(certificate(plan, figures.departures));
    }
    if alone && figures.final_free > 0 {
        out.push(format!(
            "{name}: {} of what was reserved was not allocated, on average; {} are free at the end, {} of them in one piece.",
            percent(figures.mean_unused_share),
            bytes::both(figures.final_free),
            bytes::both(figures.final_largest_free)
        ));
    }
    out
}

fn certificate(plan: &Certificate, departures: u64) -> String {
    let quality = if plan.is_optimal() {
        "as many as the lower bound: no allocator can do better".to_string()
    } else {
        let above = plan.plan_bytes as f64 / plan.bound_bytes.max(1) as f64 - 1.0;
        format!("{} above the lower bound; the best there is lies between them", percent(above))
    };
    let mut text = format!(
        "planned: every allocation has its place in {} ({}), {quality}. Checked: no two that live together overlap, and \
         the {} of the bound do live together, after operation {}.",
        bytes::both(plan.plan_bytes),
        plan.packing,
        counted(plan.bound_allocations as u64, "allocation"),
        grouped(plan.bound_operation)
    );
    if !plan.fits {
        text += " The device has no room for it.";
    }
    if departures > 0 {
        text += &format!(" {} of other streams lie outside of it.", counted(departures, "request"));
    }
    text
}

/// One policy: memory, and how much of it is of no use.
fn over_time(figures: &Figures, last: &str, style: Style) -> String {
    let point = |sample: &lab::replay::Sample| Point {
        allocated: sample.allocated_bytes,
        peak: sample.allocated_bytes,
        reserved: sample.reserved_bytes,
    };
    let points: Vec<Point> = figures.samples.iter().map(point).collect();
    let mut out = format!("\n{}\n{}", style.bold("Memory over the operations"), chart::memory(&points, "0", last));
    let of = |get: fn(&lab::replay::Sample) -> u64| figures.samples.iter().map(get).collect::<Vec<u64>>();
    let series = [
        ("in split segments".to_string(), of(|sample| sample.inactive_split_bytes)),
        ("reserved, not allocated".to_string(), of(|sample| sample.unused_bytes)),
    ];
    let drawn = chart::lines(&series, &labels(figures.samples.len(), last), style);
    if !drawn.is_empty() {
        out += &format!("\n{}\n{drawn}", style.bold("Fragmentation over the operations"));
    }
    out
}

/// Several: what each reserves.
fn side_by_side(policies: &[Taken], last: &str, style: Style) -> String {
    let reserved = |figures: &Figures| figures.samples.iter().map(|sample| sample.reserved_bytes).collect();
    let series: Vec<(String, Vec<u64>)> =
        policies.iter().map(|(name, figures)| (name.to_string(), reserved(figures))).collect();
    let length = series.first().map_or(0, |(_, values)| values.len());
    format!("\n{}\n{}", style.bold("Reserved over the operations"), chart::lines(&series, &labels(length, last), style))
}

fn labels(length: usize, last: &str) -> Vec<String> {
    (0..length).map(|at| if at + 1 == length { last.to_string() } else { at.to_string() }).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
