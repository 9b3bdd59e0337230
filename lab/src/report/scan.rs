//! A scan (`vramlab-scan-1`): a run for every combination, as curves and a table.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::table::{Cell, list, plain, settings, table};
use super::text::{element, escaped};
use crate::results::command;
use crate::section::{Chart, Series, Shape};

/// Writes the part.
pub(super) fn show(out: &mut String, result: &Value) {
    let names: Vec<String> = list(&result["parameters"]).iter().map(plain).collect();
    let results = list(&result["results"]);
    let first = results.first().map_or(&Value::Null, |first| &first["run"]);
    out.push_str("<header>\n");
    element(out, "h1", &format!("Peaks by {}", names.join(" and ")));
    let _ = writeln!(
        out,
        "<p class=\"lead\">{}<br>on {}</p>\n</header>",
        escaped(first["description"].as_str().unwrap_or_default()),
        escaped(first["device"]["backend"].as_str().unwrap_or_default())
    );
    curves(out, &names, results);
    rows(out, &names, results);
    let in_force = first["settings"].as_object();
    let mut fixed = in_force.cloned().unwrap_or_default();
    names.iter().for_each(|name| drop(fixed.shift_remove(name)));
    settings(out, Some(&fixed), &again(&names, results, &fixed));
}

/// The command, with the values that were scanned.
fn again(names: &[String], results: &[Value], fixed: &Map<String, Value>) -> String {
    let mut command = command::of_run(fixed);
    for name in names {
        let mut values: Vec<String> = Vec::new();
        for value in results.iter().map(|result| plain(&result["parameters"][name])) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let _ = write!(command, " -L {name} {}", values.join(","));
    }
    command
}

/// Peaks along the first parameter; of a second one, each value is a line.
fn curves(out: &mut String, names: &[String], results: &[Value]) {
    let Some(axis) = names.first() else { return };
    let x: Vec<Option<f64>> = results.iter().map(|result| number(&result["parameters"][axis])).collect();
    let numbers = x.iter().all(Option::is_some);
    let mut labels: Vec<String> = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    for result in results {
        let (label, group) = (plain(&result["parameters"][axis]), group(names, result));
        if !labels.contains(&label) {
            labels.push(label);
        }
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    if labels.len() < 2 || groups.len() > 8 {
        return;
    }
    let place = |index: usize, result: &Value| {
        let label = plain(&result["parameters"][axis]);
        if numbers { x[index] } else { labels.iter().position(|known| *known == label).map(|i| i as f64) }
    };
    let line = |wanted: &String, value: &dyn Fn(&Value) -> Option<u64>| -> Vec<(f64, f64)> {
        let mine = results.iter().enumerate().filter(|(_, result)| group(names, result) == *wanted);
        let mut points: Vec<(f64, f64)> =
            mine.filter_map(|(i, result)| Some((place(i, result)?, value(result)? as f64))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let alone = groups.len() == 1;
    let mut series = Vec::new();
    for (color, group) in groups.iter().enumerate() {
        let name = |figure: &str| if alone { figure.to_string() } else { format!("{group}: {figure}") };
        // Of several lines the allocated ones are enough.
        let figures =
            [("allocated", "bytes", "peak_bytes", color), ("reserved", "reserved_bytes", "reserved_bytes", 1)];
        for (figure, measured, predicted, color) in figures.into_iter().take(if alone { 2 } else { 1 }) {
            let predicted = line(group, &|result| result["predicted"][predicted].as_u64());
            let measured = line(group, &|result| result["run"]["peak"][measured].as_u64());
            let shape = if predicted.is_empty() { Shape::Line } else { Shape::Dots };
            series.push(Series { name: name(figure), points: measured, color, shape });
            if !predicted.is_empty() {
                let name = if alone { format!("{figure}, predicted") } else { String::new() };
                series.push(Series { name, points: predicted, color, shape: Shape::Predicted });
            }
        }
    }
    let labels = if numbers { Vec::new() } else { labels };
    let chart = Chart { title: "The peak".into(), x: axis.clone(), labels, series, bytes: true, limit: None };
    out.push_str("<section>\n<h2>How the peak grows</h2>\n");
    if chart.series.iter().any(|series| series.shape == Shape::Predicted) {
        out.push_str("<p class=\"note\">Dots are measured, dashed lines predicted without the device.</p>\n");
    }
    chart.draw(out);
    out.push_str("</section>\n");
}

/// The values of the parameters behind the first.
fn group(names: &[String], result: &Value) -> String {
    let words = names.iter().skip(1).map(|name| format!("{name} {}", plain(&result["parameters"][name])));
    words.collect::<Vec<_>>().join(", ")
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

/// Why a run ended for lack of memory, and what is missing; empty where it did not.
fn failure(out_of_memory: &Value) -> String {
    if out_of_memory.is_null() {
        return String::new();
    }
    let why = out_of_memory["verdict"].as_str().map_or(String::new(), |why| format!(" ({why})"));
    let missing = out_of_memory["missing_bytes"].as_u64();
    let missing = missing.map_or(String::new(), |bytes| format!(": {} more", crate::figures::short(bytes)));
    format!("no{missing}{why}")
}

fn rows(out: &mut String, names: &[String], results: &[Value]) {
    let predicted = results.iter().any(|result| result["predicted"]["peak_bytes"].is_u64());
    let row = |result: &Value| {
        let run = &result["run"];
        let mut cells: Vec<Cell> = names.iter().map(|name| Cell::text(&plain(&result["parameters"][name]))).collect();
        // The peak of a run that failed is where it stopped, not what it needs.
        let finished = |key: &str| if run["out_of_memory"].is_null() { &run["peak"][key] } else { &Value::Null };
        cells.push(Cell::bytes_of(finished("bytes")));
        if predicted {
            cells.push(Cell::bytes_of(&result["predicted"]["peak_bytes"]));
        }
        cells.push(Cell::bytes_of(finished("reserved_bytes")));
        cells.push(Cell::value(&run["ms_per_step_median"], ""));
        let failed = failure(&run["out_of_memory"]);
        let who = || [&run["peak"]["phase"], &run["peak"]["op"], &run["peak"]["scope"]].map(plain);
        let who = || who().into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
        cells.push(Cell::text(&if failed.is_empty() { who() } else { failed }));
        cells
    };
    let rows: Vec<Vec<Cell>> = results.iter().map(row).collect();
    let mut columns = names.to_vec();
    let figures = ["allocated", "predicted", "reserved", "ms per step", "highest when"];
    columns.extend(figures.into_iter().filter(|name| predicted || *name != "predicted").map(String::from));
    out.push_str("<section>\n");
    table(out, "Peaks, for every combination", &columns, &rows);
    out.push_str("</section>\n");
}
