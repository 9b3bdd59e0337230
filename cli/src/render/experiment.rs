//! An experiment's outcome for people.

use std::collections::BTreeSet;

use lab::experiments::{Cell, Experiment, Measurement, Outcome, Table, Verdict};
use serde_json::Value;

use super::style::Style;
use super::{WIDTH, chart, table, wrapped};

/// Question, command, tables, predictions beside measurements, curves, verdicts.
pub(crate) fn text(experiment: &dyn Experiment, outcome: &Outcome, command: &str, style: Style) -> String {
    let mut out = format!("{}\n{}\n", style.bold(experiment.name()), wrapped(experiment.question(), WIDTH, 0));
    for claim in experiment.claims() {
        out += &format!("  - {}\n", wrapped(&format!("{} [{}]", claim.text, claim.source), WIDTH - 4, 4));
    }
    out += &format!("again: {}\n\n", wrapped(command, WIDTH - 7, 2));
    for part in &outcome.tables {
        out += &table::titled(part, style);
        out.push('\n');
    }
    if !outcome.rows.is_empty() {
        out += &table::titled(&rows(experiment, outcome), style);
        out.push('\n');
    }
    for curve in &outcome.curves {
        let drawn = chart::lines(&curve.series, &curve.labels, style);
        if !drawn.is_empty() {
            out += &format!("{}\n{drawn}\n", style.bold(&curve.title));
        }
    }
    for note in &outcome.notes {
        out += &format!("{}\n", wrapped(note, WIDTH, 0));
    }
    for judged in &outcome.claims {
        let (word, width) = match judged.verdict {
            Verdict::Holds => (style.green("holds"), 5),
            Verdict::Fails => (style.red("fails"), 5),
            Verdict::Depends => (style.yellow("depends"), 7),
        };
        let reason = format!("{} [{}] {}", judged.claim.text, judged.claim.source, judged.condition);
        out += &format!("{word}  {}\n", wrapped(&reason, WIDTH - width - 2, 2));
    }
    if outcome.interrupted {
        out += "stopped early: this is what was measured until then\n";
    }
    out.push('\n');
    out
}

/// One row per setting and quantity: predicted, measured, residual.
pub(crate) fn rows(experiment: &dyn Experiment, outcome: &Outcome) -> Table {
    let settings: BTreeSet<&String> = outcome.rows.iter().flat_map(|row| row.setting.keys()).collect();
    let fixed = ["quantity", "predicted", "measured", "residual"];
    let columns = settings.iter().map(|name| name.to_string()).chain(fixed.map(String::from)).collect();
    let mut rows = Vec::new();
    for row in &outcome.rows {
        let quantities: BTreeSet<&String> = row.predicted.keys().chain(row.measured.keys()).collect();
        for quantity in quantities {
            let setting = settings.iter().map(|name| Cell::Text(row.setting.get(*name).map_or(String::new(), plain)));
            rows.push(setting.chain(figures(row, quantity)).collect());
        }
    }
    Table { title: format!("{}: predicted and measured", experiment.name()), columns, rows }
}

fn figures(row: &Measurement, quantity: &str) -> [Cell; 4] {
    let is_bytes = quantity.ends_with("_bytes");
    let figure = |value: Option<i64>| match value {
        Some(value) if is_bytes && value >= 0 => Cell::Bytes(value as u64),
        Some(value) if is_bytes => Cell::Difference(value),
        Some(value) => Cell::Text(value.to_string()),
        None => Cell::Text("–".into()),
    };
    let residual = match row.residual.get(quantity) {
        Some(residual) if is_bytes => Cell::Difference(*residual),
        Some(residual) => Cell::Text(residual.to_string()),
        None => Cell::Text("–".into()),
    };
    let name = quantity.strip_suffix("_bytes").unwrap_or(quantity).replace('_', " ");
    let predicted = figure(row.predicted.get(quantity).copied().flatten());
    [Cell::Text(name), predicted, figure(row.measured.get(quantity).copied().flatten()), residual]
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
