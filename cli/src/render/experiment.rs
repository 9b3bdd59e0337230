//! An experiment's outcome for people.

use std::collections::BTreeSet;

use lab::experiments::{Experiment, Measurement, Outcome, Verdict};
use lab::section::{Cell, Table};
use serde_json::Value;

use super::style::Style;
use super::{WIDTH, chart, counted, table, wrapped};

/// Rows of predictions that a terminal is given, unless they do not hold.
const MOST_ROWS: usize = 60;

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
        out += &table::titled(&readable(outcome), style);
        out.push('\n');
    }
    for curve in &outcome.curves {
        let drawn = chart::lines(&curve.series, &curve.labels, style);
        if !drawn.is_empty() {
            out += &format!("{}\n{drawn}\n", style.bold(&wrapped(&curve.title, WIDTH, 0)));
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
            Verdict::NotTested => (style.bold("not tested"), 10),
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

/// One row per setting and quantity: predicted, measured, residual. Of several experiments, each row says of which.
pub(crate) fn rows(experiments: &[(&str, &Outcome)]) -> Table {
    let several = experiments.len() > 1;
    let all_rows = || experiments.iter().flat_map(|(name, outcome)| outcome.rows.iter().map(move |row| (*name, row)));
    let settings: BTreeSet<&String> = all_rows().flat_map(|(_, row)| row.setting.keys()).collect();
    let fixed = ["quantity", "predicted", "measured", "residual"].map(String::from);
    let named = several.then(|| "experiment".to_string());
    let columns = named.into_iter().chain(settings.iter().map(|name| name.to_string())).chain(fixed).collect();
    let mut rows = Vec::new();
    for (name, row) in all_rows() {
        let quantities: BTreeSet<&String> = row.predicted.keys().chain(row.measured.keys()).collect();
        for quantity in quantities {
            let name = several.then(|| Cell::Text(name.to_string()));
            let setting = settings.iter().map(|name| Cell::Text(row.setting.get(*name).map_or(String::new(), plain)));
            rows.push(name.into_iter().chain(setting).chain(figures(row, quantity)).collect());
        }
    }
    Table { title: "Predicted and measured".into(), columns, rows }
}

/// The same of one experiment for a terminal: settings in one column, and of the rows that agree only as many as one can read.
fn readable(outcome: &Outcome) -> Table {
    let mut rows = Vec::new();
    let mut left_out = 0;
    for row in &outcome.rows {
        let setting: Vec<String> = row.setting.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
        let mut setting = Cell::Text(setting.join(", "));
        let quantities: BTreeSet<&String> = row.predicted.keys().chain(row.measured.keys()).collect();
        for quantity in quantities {
            if rows.len() >= MOST_ROWS && row.residual.get(quantity).is_none_or(|residual| *residual == 0) {
                left_out += 1;
                continue;
            }
            let [name, figures @ ..] = figures(row, quantity);
            let name = match name {
                Cell::Text(name) => Cell::Text(name.strip_suffix("_bytes").unwrap_or(&name).replace('_', " ")),
                other => other,
            };
            // Of a setting with several quantities, the first row names it.
            let setting = std::mem::replace(&mut setting, Cell::Text(String::new()));
            rows.push([setting, name].into_iter().chain(figures).collect());
        }
    }
    let more = match left_out {
        0 => String::new(),
        n => format!(" (and {} that do not differ: --export-csv has all)", counted(n, "row")),
    };
    let columns = ["setting", "quantity", "predicted", "measured", "residual"].map(String::from).to_vec();
    Table { title: format!("Predicted and measured{more}"), columns, rows }
}

fn figures(row: &Measurement, quantity: &str) -> [Cell; 4] {
    let is_bytes = quantity.ends_with("_bytes");
    let figure = |value: Option<i64>| match value {
        Some(value) if is_bytes && value >= 0 => Cell::Bytes(value.unsigned_abs()),
        Some(value) if is_bytes => Cell::Difference(value),
        Some(value) if value >= 0 => Cell::Count(value.unsigned_abs()),
        Some(value) => Cell::Number(value as f64),
        None => Cell::Text("–".into()),
    };
    let residual = row.residual.get(quantity).copied();
    let residual = if is_bytes { residual.map_or(figure(None), Cell::Difference) } else { figure(residual) };
    let predicted = figure(row.predicted.get(quantity).copied().flatten());
    [Cell::Text(quantity.into()), predicted, figure(row.measured.get(quantity).copied().flatten()), residual]
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
