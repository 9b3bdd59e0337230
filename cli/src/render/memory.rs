//! A run's memory for people: what, when, who, and how the figures hang together.

use lab::record::Row;
use lab::section::{Cell, Table};
use lab::training::Accuracy;
use memcore::memory::Category;

use super::style::Style;
use super::{WIDTH, bytes, counted, grouped, picture, table, wrapped};
use crate::commands::outcome::{Outcome, Report};

/// Rows shown from the start of a run, and from its end.
const HEAD: usize = 13;
const TAIL: usize = 7;

/// Everything about a finished run, but for its header.
pub(crate) fn text(report: &Report, outcome: &Outcome, style: Style) -> String {
    let mut out = table::titled(&shortened(rows(report.rows()), report.rows_left_out()), style);
    out += &format!("\n{}", table::titled(&composition(outcome), style));
    out += &made_by(outcome);
    out += &format!(
        "\n{}\n{}",
        style.bold("From what was asked for to what the device gave, after the last step"),
        bridge(outcome, report.device.backend == "cpu")
    );
    if let Some(leak) = &report.leak {
        out += &format!("\n{}", super::leak::text(leak, style));
    }
    out += &format!("\n{}", values(report, outcome));
    if let Some(summary) = &report.summary {
        out += &format!("\n{summary}");
    }
    if let Some(stats) = &report.stats {
        out += &format!("\n{}\n", style.bold("memory_stats() after the last step"));
        out.extend(stats.iter().map(|(name, value)| format!("{name} {value}\n")));
    }
    format!("{out}\n{}", picture::text(outcome, style))
}

/// What a run had measured when memory ran out.
pub(crate) fn until_it_failed(report: &Report, style: Style) -> String {
    let mut table = rows(report.rows());
    table.title += ", until memory ran out";
    let mut out = table::titled(&shortened(table, report.rows_left_out()), style);
    if let Some(leak) = &report.leak {
        out += &format!("\n{}", super::leak::text(leak, style));
    }
    out
}

/// Device, model and settings.
pub(crate) fn header(report: &Report, style: Style) -> String {
    let device = &report.device;
    let setting = |key: &str| {
        report.settings.get(key).map_or(String::new(), |value| match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    let has = |key: &str| report.settings.get(key).is_some_and(|value| !value.is_null() && *value != false);
    let total = device.total_bytes.map_or(String::new(), |total| format!(", {}", bytes::short(total)));
    let mut run = format!(
        "batch {}, {} ({}) lr {}, {}, {} data, {}, seed {}",
        setting("batch"),
        setting("optimizer"),
        setting("optimizer-impl"),
        setting("lr"),
        counted(report.settings.get("steps").and_then(|v| v.as_u64()).unwrap_or(0), "step"),
        setting("data"),
        setting("precision"),
        setting("seed")
    );
    if setting("accumulate") != "1" {
        run += &format!(", {} micro-batches per step", setting("accumulate"));
    }
    let mut memory = format!("{} allocator, profile {}", setting("allocator"), setting("like"));
    for (key, name) in [("memory-limit", "limit"), ("memory-fraction", "fraction"), ("alloc-conf", "settings")] {
        if has(key) {
            let limit = report.settings.get(key).and_then(|v| v.as_u64()).filter(|_| key == "memory-limit");
            memory += &format!(", {name} {}", limit.map_or_else(|| setting(key), bytes::both));
        }
    }
    let mut lines = vec![
        ("device", format!("{} {} ({}{total})", device.backend, device.index, device.name)),
        ("model", format!("{}: {}", report.model, report.description)),
        ("run", run),
        ("memory", memory),
    ];
    if let Ok(outcome) = &report.outcome {
        let held = outcome.result.usage.by_category()[Category::Parameter as usize];
        lines.insert(2, ("", format!("{} parameters, {}", grouped(outcome.result.parameters), bytes::both(held))));
    }
    let line = |(name, text): &(&str, String)| {
        let name = format!("{name:<8}");
        format!("{}{}\n", style.bold(&name), wrapped(text, WIDTH - 8, 8))
    };
    lines.iter().map(line).collect()
}

/// A row per phase.
pub(crate) fn rows(rows: &[Row]) -> Table {
    let columns = ["phase", "allocated", "peak in phase", "reserved"].map(String::from).to_vec();
    let row = |row: &Row| {
        let figures = [row.allocated, row.phase_peak_allocated, row.reserved].map(Cell::Bytes);
        std::iter::once(Cell::Text(row.label.clone())).chain(figures).collect()
    };
    Table { title: "Memory by phase".into(), columns, rows: rows.iter().map(row).collect() }
}

/// The first steps and the last; what is left out, here or before, is said.
fn shortened(mut table: Table, left_out: usize) -> Table {
    let n = table.rows.len();
    if n > HEAD + TAIL + 1 {
        let rest = format!("⋮ {} rows", n - HEAD - TAIL + left_out);
        let mut gap = vec![Cell::Text(rest)];
        gap.resize(table.columns.len(), Cell::Text("⋮".into()));
        table.rows.splice(HEAD..n - TAIL, [gap]);
    }
    table
}

/// What the peak consisted of, beside what was there after the last step.
pub(crate) fn composition(outcome: &Outcome) -> Table {
    let (peak, now) = (&outcome.result.peak, outcome.result.usage.by_category());
    let share = |part: u64| Cell::Text(format!("{:.1} %", 100.0 * part as f64 / peak.allocated_bytes.max(1) as f64));
    let row = |name: &str, at_peak: u64, now: u64| {
        vec![Cell::Text(name.replace('_', " ")), Cell::Bytes(at_peak), share(at_peak), Cell::Bytes(now)]
    };
    let mut categories: Vec<Category> = Category::ALL.to_vec();
    categories.sort_by_key(|c| std::cmp::Reverse(peak.by_category[*c as usize]));
    let there = categories.into_iter().filter(|c| peak.by_category[*c as usize] > 0 || now[*c as usize] > 0);
    let mut rows: Vec<Vec<Cell>> =
        there.map(|c| row(c.name(), peak.by_category[c as usize], now[c as usize])).collect();
    rows.push(row("total", peak.by_category.iter().sum(), now.iter().sum()));
    let columns = ["category", "at the peak", "share", "after the last step"].map(String::from).to_vec();
    Table { title: "What the peak consisted of".into(), columns, rows }
}

fn made_by(outcome: &Outcome) -> String {
    let maker = &outcome.maker;
    let mut text = String::from("reached");
    if let Some(label) = outcome.peak_label() {
        text += &format!(" before row {label}");
    }
    if !maker.op.is_empty() {
        text += &format!(", by {}", maker.op);
    }
    if !maker.scope.is_empty() {
        text += &format!(" of {}", maker.scope);
    }
    if !maker.phase.is_empty() {
        text += &format!(", in phase {}", maker.phase);
    }
    wrapped(&text, WIDTH, 2) + "\n"
}

/// The five rings and the gaps between them. Each line is the one above plus what stands there.
///
/// `on_host`: the device is the host, whose memory is everybody's: what is in use there says nothing about the run.
fn bridge(outcome: &Outcome, on_host: bool) -> String {
    let rings = &outcome.result.rings;
    let last = outcome.result.rows.iter().rev().find(|row| row.label != "end");
    let cached = rings.reserved_bytes.saturating_sub(rings.active_bytes);
    // Measured at the same moment as the rings; were it not, the gap would still be shown as a whole.
    let split = last.map_or(0, |row| row.inactive_split).min(cached);
    let total = |name: &str, value: u64| format!("  {name:<46}{:>28}\n", bytes::both(value));
    let gap = |name: &str, from: u64, to: u64| {
        let difference = i64::try_from(i128::from(to) - i128::from(from)).unwrap_or(i64::MAX);
        let exact = if difference.unsigned_abs() < 1024 { String::new() } else { format!(" ({difference})") };
        format!("    {name:<44}{:>28}\n", bytes::signed(difference) + &exact)
    };
    let mut out = total("requested", rings.requested_bytes);
    out += &gap("rounding to blocks", rings.requested_bytes, rings.allocated_bytes);
    out += &total("allocated", rings.allocated_bytes);
    out += &gap("frees that wait for other streams", rings.allocated_bytes, rings.active_bytes);
    out += &total("active", rings.active_bytes);
    out += &gap("free parts of segments in use", rings.active_bytes, rings.active_bytes + split);
    out += &gap("cached segments", rings.active_bytes + split, rings.reserved_bytes);
    out += &total("reserved", rings.reserved_bytes);
    match rings.driver_bytes {
        _ if on_host => out,
        Some(driver) => {
            let mut below = rings.reserved_bytes;
            for part in outcome.result.overheads.iter().filter(|part| part.bytes > 0) {
                out += &gap(part.name, below, below + part.bytes);
                below += part.bytes;
            }
            let measured = !outcome.result.overheads.is_empty();
            let rest = if measured { "unexplained" } else { "context, libraries, other processes" };
            out += &gap(rest, below, driver);
            out + &total("in use on the device, says its driver", driver)
        }
        None => out + "  the driver does not say what is in use on the device\n",
    }
}

/// What of the test examples is classified right.
pub(super) fn accuracy(accuracy: Accuracy) -> String {
    let (share, right, of) = (100.0 * accuracy.share(), accuracy.right, accuracy.of);
    format!("test accuracy {share:.2} % ({right} of {of})")
}

/// Losses, accuracy and time, where there are any.
fn values(report: &Report, outcome: &Outcome) -> String {
    let result = &outcome.result;
    let mut lines = Vec::new();
    if let (Some(first), Some(last)) = (result.losses.first(), result.losses.last()) {
        lines.push(format!("loss {first:.6} at the first step, {last:.6} at the last"));
    }
    lines.extend(result.accuracy.map(accuracy));
    if let Some(ms) = outcome.ms_median() {
        lines.push(format!("{} ms per step (median)", lab::figures::number(ms)));
    }
    if lines.is_empty() {
        lines.push(match report.device.computes {
            true => format!("no losses and no times: {}", report.reason().unwrap_or("there are none")),
            false => "no losses and no times: the device accounts for memory and computes nothing".into(),
        });
    }
    if result.interrupted {
        lines.push("stopped early: this is what was measured until then".into());
    }
    lines.join("\n") + "\n"
}
