//! An experiment (`vramlab-experiment-1`): the question, the verdicts, predictions beside measurements.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::table::{Cell, list, of_result, plain, settings, table};
use super::text::{element, escaped};
use crate::results::command;
use crate::section::{Chart, Series, Shape};

/// Rows of predictions that a page shows.
const MOST_ROWS: usize = 1500;
/// Charts of one experiment.
const MOST_CHARTS: usize = 8;

/// Writes the part.
pub(super) fn show(out: &mut String, result: &Value) {
    let name = result["experiment"].as_str().unwrap_or("experiment");
    out.push_str("<header>\n");
    element(out, "h1", name);
    let _ = writeln!(
        out,
        "<p class=\"lead\">{}<br>on {}</p>\n</header>",
        escaped(result["question"].as_str().unwrap_or_default()),
        escaped(result["device"]["backend"].as_str().unwrap_or("an unnamed device"))
    );
    verdicts(out, &result["claims"]);
    predictions(out, list(&result["rows"]));
    for curve in list(&result["curves"]) {
        self::curve(out, curve);
    }
    let tables = list(&result["tables"]);
    if !tables.is_empty() {
        out.push_str("<section>\n<h2>What was found</h2>\n");
        tables.iter().for_each(|table| of_result(out, table));
        out.push_str("</section>\n");
    }
    rows(out, list(&result["rows"]));
    let notes = list(&result["notes"]);
    if !notes.is_empty() {
        out.push_str("<section>\n<h2>Also seen</h2>\n");
        notes.iter().for_each(|note| element(out, "p", note.as_str().unwrap_or_default()));
        out.push_str("</section>\n");
    }
    let empty = Map::new();
    let in_force = result["settings"].as_object();
    settings(out, in_force, &command::again(&["run", name], in_force.unwrap_or(&empty)));
}

fn verdicts(out: &mut String, claims: &Value) {
    if list(claims).is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Verdicts</h2>\n<ul class=\"verdicts\">\n");
    for claim in list(claims) {
        let verdict = claim["verdict"].as_str().unwrap_or("open");
        // The word says it; colour and sign only repeat it.
        let (class, sign) = match verdict {
            "holds" => ("holds", "✓"),
            "fails" => ("fails", "✗"),
            "depends" => ("depends", "≈"),
            "not-tested" => ("open", "–"),
            _ => ("open", "?"),
        };
        let text = |key: &str| escaped(claim[key].as_str().unwrap_or_default());
        let _ = writeln!(
            out,
            "<li class=\"{class}\"><b><span aria-hidden=\"true\">{sign}</span> {}</b><div><p>{} <cite>{}</cite></p>\
             <p class=\"note\">{}</p></div></li>",
            escaped(&verdict.replace('-', " ")),
            text("text"),
            text("source"),
            text("condition")
        );
    }
    out.push_str("</ul>\n</section>\n");
}

/// The settings of a row but for one, in words.
fn others(setting: &Map<String, Value>, without: &str) -> String {
    let words = setting.iter().filter(|(name, _)| *name != without);
    words.map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>().join(", ")
}

/// Measured and predicted points along the setting with the most numbers, a chart per quantity in bytes.
fn predictions(out: &mut String, rows: &[Value]) {
    let mut values: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (name, value) in rows.iter().filter_map(|row| row["setting"].as_object()).flatten() {
        if let Some(number) = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok())) {
            let known = values.entry(name).or_default();
            if !known.contains(&number) {
                known.push(number);
            }
        }
    }
    let Some((axis, _)) = values.iter().filter(|(_, values)| values.len() >= 3).max_by_key(|(_, v)| v.len()) else {
        return;
    };
    let mut quantities: Vec<&String> = Vec::new();
    for quantity in rows.iter().filter_map(|row| row["measured"].as_object()).flat_map(Map::keys) {
        if quantity.ends_with("_bytes") && !quantities.contains(&quantity) {
            quantities.push(quantity);
        }
    }
    let charts: Vec<Chart> =
        quantities.iter().filter_map(|quantity| chart(rows, axis, quantity)).take(MOST_CHARTS).collect();
    if charts.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2>Measured and predicted</h2>\n<p class=\"note\">Dots are measured, dashed lines predicted.</p>\n",
    );
    charts.iter().for_each(|chart| chart.draw(out));
    out.push_str("</section>\n");
}

/// Points of one line: the other settings, and whether they were predicted.
type Lines = BTreeMap<(String, bool), Vec<(f64, f64)>>;

fn chart(rows: &[Value], axis: &str, quantity: &str) -> Option<Chart> {
    let mut lines = Lines::new();
    for row in rows {
        let Some(setting) = row["setting"].as_object() else { continue };
        let value = setting.get(axis)?;
        let Some(x) = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok())) else { continue };
        for (key, predicted) in [("measured", false), ("predicted", true)] {
            if let Some(y) = row[key][quantity].as_f64() {
                lines.entry((others(setting, axis), predicted)).or_default().push((x, y));
            }
        }
    }
    let groups: Vec<&String> = lines.keys().filter(|(_, predicted)| !predicted).map(|(group, _)| group).collect();
    // More lines than colours could not be told apart; a flat zero says nothing.
    let flat = lines.values().flatten().all(|(_, y)| *y == 0.0);
    if groups.is_empty() || groups.len() > 6 || flat || !lines.values().any(|points| points.len() >= 3) {
        return None;
    }
    let color = |group: &String| groups.iter().position(|known| *known == group).unwrap_or(0);
    let alone = groups.len() == 1;
    let name = |group: &String, predicted: bool| match (alone, predicted) {
        (true, true) => "predicted".to_string(),
        (true, false) => "measured".to_string(),
        (false, _) => group.clone(),
    };
    let mut series = Vec::new();
    for ((group, predicted), points) in &lines {
        let mut points = points.clone();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let shape = if *predicted { Shape::Predicted } else { Shape::Dots };
        // With several lines the dots' names are enough.
        let name = if *predicted && !alone { String::new() } else { name(group, *predicted) };
        series.push(Series { name, points, color: color(group), shape });
    }
    let title = quantity.trim_end_matches("_bytes").replace('_', " ");
    Some(Chart { title, x: axis.into(), labels: Vec::new(), series, bytes: true, limit: None })
}

fn curve(out: &mut String, curve: &Value) {
    let series = list(&curve["series"]).iter().enumerate().map(|(i, series)| {
        let values = list(&series[1]).iter().enumerate();
        Series {
            name: series[0].as_str().unwrap_or_default().into(),
            points: values.filter_map(|(i, value)| Some((i as f64, value.as_f64()?))).collect(),
            color: i % 8,
            shape: Shape::Line,
        }
    });
    let chart = Chart {
        title: curve["title"].as_str().unwrap_or_default().into(),
        x: String::new(),
        labels: list(&curve["labels"]).iter().map(plain).collect(),
        series: series.collect(),
        bytes: true,
        limit: None,
    };
    out.push_str("<section>\n");
    chart.draw(out);
    out.push_str("</section>\n");
}

fn rows(out: &mut String, rows: &[Value]) {
    let mut cells: Vec<Vec<Cell>> = Vec::new();
    let mut differ = 0usize;
    for row in rows {
        let (Some(setting), Some(measured)) = (row["setting"].as_object(), row["measured"].as_object()) else {
            continue;
        };
        let predicted = row["predicted"].as_object();
        let further = predicted.into_iter().flat_map(Map::keys).filter(|name| !measured.contains_key(*name));
        for quantity in measured.keys().chain(further) {
            let kind = if quantity.ends_with("_bytes") { "bytes" } else { "" };
            let residual = &row["residual"][quantity];
            differ += usize::from(residual.as_i64().is_some_and(|residual| residual != 0));
            let difference = if kind == "bytes" { "difference" } else { "" };
            cells.push(vec![
                Cell::text(&others(setting, "")),
                Cell::text(&quantity.trim_end_matches("_bytes").replace('_', " ")),
                Cell::value(&row["predicted"][quantity], kind),
                Cell::value(&measured.get(quantity).cloned().unwrap_or_default(), kind),
                Cell::value(residual, difference),
            ]);
        }
    }
    if cells.is_empty() {
        return;
    }
    let all = cells.len();
    cells.truncate(MOST_ROWS);
    let _ = write!(
        out,
        "<section>\n<details><summary>Every prediction beside its measurement: {all} rows, {differ} with a difference</summary>\n"
    );
    let columns = ["setting", "quantity", "predicted", "measured", "residual"].map(String::from);
    table(out, "Predicted and measured", &columns, &cells);
    if all > MOST_ROWS {
        let _ = writeln!(out, "<p class=\"note\">The first {MOST_ROWS}; --export-csv has all.</p>");
    }
    out.push_str("</details>\n</section>\n");
}
