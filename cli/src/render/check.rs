//! What a memory lock comes to, for people.

use lab::lock::{Change, Comparison, Locked, Part, Verdict};
use lab::section::{Cell, Table};
use serde_json::Value;

use super::style::Style;
use super::{WIDTH, bytes, counted, premises, table as tables, wrapped};
use crate::args::CheckArgs;
use lab::results::Premise;

/// A run of the file, and what it takes now.
pub(crate) struct Checked {
    /// Its name.
    pub name: String,
    /// The network.
    pub model: String,
    /// What its figures rest on, and where that came from.
    pub premises: Vec<Premise>,
    /// What it takes now.
    pub now: Locked,
    /// Beside what it took; `None` for a run that was not in the file.
    pub comparison: Option<Comparison>,
    /// Where its figures may not be what was asked for.
    pub warnings: Vec<String>,
}

/// Who grew is named up to this many.
const TOP: usize = 10;

/// The figures of a lock, in words.
pub(crate) fn figure(name: &str) -> &str {
    match name {
        "allocated" => "peak allocated",
        "reserved" => "peak reserved",
        "held" => "after the last step",
        other => other,
    }
}

/// A row for each figure of each run.
pub(crate) fn table(checked: &[Checked]) -> Table {
    let columns = ["run", "figure", "baseline", "now", "change"].map(String::from).to_vec();
    let rows = checked.iter().flat_map(|run| match &run.comparison {
        Some(comparison) => comparison.figures.iter().map(|change| row(&run.name, change, true)).collect::<Vec<_>>(),
        None => {
            let memory = &run.now.memory;
            let figures =
                [("allocated", memory.peak.allocated), ("reserved", memory.peak.reserved), ("held", memory.held)];
            let change = |(name, now): (&str, u64)| Change { name: name.into(), baseline: 0, now };
            figures.map(|figure| row(&run.name, &change(figure), false)).into()
        }
    });
    Table { title: "Memory, beside what is locked".into(), columns, rows: rows.collect() }
}

fn row(run: &str, change: &Change, known: bool) -> Vec<Cell> {
    let dash = || Cell::Text("–".into());
    let (before, difference) = match known {
        true => (Cell::Bytes(change.baseline), Cell::Difference(change.difference())),
        false => (dash(), dash()),
    };
    vec![Cell::Text(run.into()), Cell::Text(figure(&change.name).into()), before, Cell::Bytes(change.now), difference]
}

/// Everything: the figures, and what is to be said of each run.
pub(crate) fn text(args: &CheckArgs, checked: &[Checked], style: Style) -> String {
    let mut out = tables::titled(&table(checked), style);
    for run in checked {
        out += &format!("\n{}\n", wrapped(&verdict(args, run, style), WIDTH, 2));
        out += &format!("{}\n", premises::line(&run.premises));
        if let Some(comparison) = &run.comparison {
            out += &details(comparison, style);
        }
    }
    if args.update {
        let file = args.baseline.display().to_string();
        out +=
            &format!("\n{}\n", wrapped(&format!("{file}: {} written", counted(checked.len() as u64, "run")), WIDTH, 2));
    }
    out
}

fn verdict(args: &CheckArgs, run: &Checked, style: Style) -> String {
    let name = format!("{}: ", run.name);
    let Some(comparison) = &run.comparison else { return name + "a new run" };
    let tolerance = &args.tolerance.text;
    let rest = match comparison.verdict {
        Verdict::Same => format!("{}, event by event", style.green("as before")),
        Verdict::Shrank => format!("{}; --update writes the file anew", style.green("less than before")),
        Verdict::Changed if comparison.figures.iter().any(|figure| figure.difference() > 0) => {
            format!("more than before, within the tolerance of {tolerance}")
        }
        Verdict::Changed => "other events, and not more memory; --update writes the file anew".to_string(),
        Verdict::Grew => {
            let peak = &run.now.memory.peak;
            let phase = if peak.phase.is_empty() { String::new() } else { format!(", in phase {}", peak.phase) };
            format!(
                "{} (tolerance {tolerance}). The peak is reached by {}{phase}",
                style.red("memory grew"),
                peak.maker()
            )
        }
    };
    name + &rest
}

fn details(comparison: &Comparison, style: Style) -> String {
    let mut out = String::new();
    if !comparison.settings.is_empty() {
        let one = |(name, before, now): &(String, Value, Value)| format!("{name} {before} → {now}");
        let settings: Vec<String> = comparison.settings.iter().map(one).collect();
        out += &format!("  {}\n", wrapped(&format!("other settings: {}", settings.join(", ")), WIDTH - 2, 4));
    }
    if comparison.verdict != Verdict::Grew {
        return out;
    }
    if !comparison.phases.is_empty() {
        let one = |change: &Change| format!("{} {}", change.name, bytes::signed(change.difference()));
        let phases: Vec<String> = comparison.phases.iter().map(one).collect();
        out += &format!("  {}\n", wrapped(&format!("peaks of the phases: {}", phases.join(", ")), WIDTH - 2, 4));
    }
    let grown = comparison.grown();
    if grown.is_empty() {
        return out + "  what the peak is made of did not grow\n";
    }
    let row = |part: &Part| {
        vec![
            Cell::Text(part.change.name.clone()),
            Cell::Text(part.category.replace('_', " ")),
            Cell::Bytes(part.change.baseline),
            Cell::Bytes(part.change.now),
            Cell::Difference(part.change.difference()),
        ]
    };
    let mut title = "What grew at the peak".to_string();
    if grown.len() > TOP {
        title += &format!(", the first {TOP} of {}", grown.len());
    }
    let columns = ["who", "category", "baseline", "now", "change"].map(String::from).to_vec();
    out + &tables::titled(&Table { title, columns, rows: grown.iter().take(TOP).map(row).collect() }, style)
}
