//! One run (`vramlab-train-1`): its figures, its rings, its tables.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::table::{Cell, list, plain, premises, settings, table, warnings};
use super::text::{bytes, counted, element, escaped, grouped, signed};
use crate::figures::number;
use crate::results::command;
use crate::section::{Chart, Series, Shape};

/// What the run is called: its model, batch and optimizer.
pub(super) fn name(result: &Value) -> String {
    let setting = |key: &str| Some(plain(&result["settings"][key])).filter(|text| text != "–");
    let model = setting("model").or_else(|| setting("model-file")).unwrap_or_else(|| "run".into());
    let batch = setting("batch").map_or(String::new(), |batch| format!(", batch {batch}"));
    model + &batch + &setting("optimizer").map_or(String::new(), |optimizer| format!(", {optimizer}"))
}

/// Name, model, device, and the figures that matter most.
pub(super) fn header(out: &mut String, result: &Value) {
    out.push_str("<header>\n");
    element(out, "h1", &name(result));
    let device = &result["device"];
    let text = |value: &Value| value.as_str().map(escaped).unwrap_or_default();
    let total = device["total_bytes"].as_u64().map_or(String::new(), |total| format!(", {}", bytes(total)));
    let _ = writeln!(
        out,
        "<p class=\"lead\">{}<br>on {} ({}{total}), memory as {}</p>",
        text(&result["description"]),
        text(&device["backend"]),
        text(&device["name"]),
        text(&result["settings"]["like"])
    );
    out.push_str("</header>\n");
    if let Some(message) = result["out_of_memory"]["message"].as_str() {
        let _ = writeln!(out, "<pre class=\"failure\" role=\"alert\">{}</pre>", escaped(message));
    }
    premises(out, result);
    warnings(out, result);
    key_figures(out, result);
}

fn key_figures(out: &mut String, result: &Value) {
    let (peak, failed) = (&result["peak"], &result["out_of_memory"]);
    let mut figures: Vec<(&str, String, String)> = Vec::new();
    if let Some(needed) = failed["needs"]["reserved_bytes"].as_u64() {
        let missing = failed["missing_bytes"]
            .as_u64()
            .map_or(String::new(), |more| format!("{} more than there is", bytes(more)));
        figures.push(("needs, with memory enough", bytes(needed), missing));
    }
    if let Some(height) = peak["bytes"].as_u64() {
        let name = if failed.is_null() { "peak allocated" } else { "allocated when memory ran out" };
        figures.push((name, bytes(height), maker(peak)));
        if let Some(reserved) = peak["reserved_bytes"].as_u64() {
            figures.push(("most reserved", bytes(reserved), "what the allocator took from the driver".into()));
        }
    }
    // A run that failed may have finished no step.
    let rings = if failed.is_null() { &result["rings"] } else { &Value::Null };
    if let Some(held) = rings["allocated"].as_u64() {
        figures.push(("after the last step", bytes(held), "parameters, optimizer state and what else stays".into()));
    }
    if let Some(parameters) = result["parameters"].as_u64() {
        figures.push(("parameters", grouped(parameters), String::new()));
    }
    if let Some(last) = result["losses"].as_array().and_then(|losses| losses.last()).and_then(Value::as_f64) {
        figures.push(("loss at the last step", number(last), String::new()));
    }
    if let Some(ms) = result["ms_per_step_median"].as_f64() {
        figures.push(("a step takes", format!("{} ms", number(ms)), "median".into()));
    }
    if figures.is_empty() {
        return;
    }
    out.push_str("<dl class=\"figures\">\n");
    for (name, value, note) in figures {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>");
    }
    out.push_str("</dl>\n");
}

/// Who made the allocation that reached the peak; escaped.
fn maker(peak: &Value) -> String {
    let part = |key: &str, before: &str| match peak[key].as_str() {
        Some(text) if !text.is_empty() => format!("{before}{}", escaped(text)),
        _ => String::new(),
    };
    let text = part("op", "by ") + &part("scope", " of ") + &part("phase", ", in phase ");
    text.trim_start_matches([' ', ',']).to_string()
}

/// Everything below the drawing. `curve`: the rows are drawn too, since there is no timeline.
pub(super) fn details(out: &mut String, result: &Value, curve: bool) {
    if curve {
        rows_chart(out, result);
    }
    bridge(out, result);
    out.push_str("<section>\n<h2>In figures</h2>\n<div class=\"pair\">\n");
    composition(out, result);
    modules(out, &result["peak"]["by_scope"]);
    peaks(out, &result["summits"]);
    techniques(out, result);
    out.push_str("</div>\n");
    rows_table(out, result);
    out.push_str("</section>\n");
    losses(out, &result["losses"]);
    let empty = Map::new();
    let in_force = result["settings"].as_object();
    settings(out, in_force, &command::of_run(in_force.unwrap_or(&empty)));
}

fn column(row: &Value, index: usize) -> u64 {
    row[index].as_u64().unwrap_or(0)
}

/// Free parts of segments in use, when the rings were read: before everything was dropped.
fn inactive_split(result: &Value) -> u64 {
    let rows = list(&result["steps"]);
    rows.iter().rev().find(|row| row[0] != "end").map_or(0, |row| column(row, 8))
}

/// The five rings: each bar is the one above and what stands between them.
fn bridge(out: &mut String, result: &Value) {
    let rings = &result["rings"];
    let ring = |name: &str| rings[name].as_u64();
    let (Some(requested), Some(allocated), Some(active), Some(reserved)) =
        (ring("requested"), ring("allocated"), ring("active"), ring("reserved"))
    else {
        return;
    };
    // On the host it is everybody's memory: what is in use there says nothing about the run.
    let on_host = result["device"]["backend"] == "cpu";
    let driver = ring("driver").filter(|_| !on_host);
    let split = inactive_split(result).min(reserved.saturating_sub(active));
    let full = driver.unwrap_or(0).max(reserved).max(requested).max(1);
    out.push_str(
        "<section>\n<h2>From what was asked for to what the device gave</h2>\n\
         <p class=\"note\">After the last step. Each line is the one above plus the gap between them.</p>\n\
         <div class=\"bridge\" role=\"table\" aria-label=\"From requested bytes to the driver's figure\">\n",
    );
    let mut line = |kind: &str, name: &str, from: u64, to: u64| {
        let (low, high) = (from.min(to), from.max(to));
        let share = |bytes: u64| 100.0 * bytes as f64 / full as f64;
        let figure = match kind {
            "ring" => bytes(to),
            _ => signed(i64::try_from(i128::from(to) - i128::from(from)).unwrap_or(i64::MAX)),
        };
        let _ = writeln!(
            out,
            "<div class=\"{kind}\" role=\"row\"><span role=\"rowheader\">{name}</span><span class=\"track\" \
             aria-hidden=\"true\"><i style=\"left:{:.3}%;width:{:.3}%\"></i></span><span role=\"cell\">{figure}</span></div>",
            share(low),
            share(high - low)
        );
    };
    line("ring", "requested", 0, requested);
    line("gap", "rounding to blocks", requested, allocated);
    line("ring", "allocated", 0, allocated);
    line("gap", "frees that wait for other streams", allocated, active);
    line("ring", "active", 0, active);
    line("gap", "free parts of segments in use", active, active + split);
    line("gap", "cached segments", active + split, reserved);
    line("ring", "reserved", 0, reserved);
    match driver {
        Some(driver) => {
            let parts = list(&result["overheads"]["parts"]);
            let mut below = reserved;
            for part in parts {
                let bytes = part["bytes"].as_u64().unwrap_or(0);
                let name = part["name"].as_str().unwrap_or_default();
                line("gap", &escaped(name), below, below.saturating_add(bytes));
                below = below.saturating_add(bytes);
            }
            let rest = if parts.is_empty() { "context, libraries, other processes" } else { "unexplained" };
            line("gap", rest, below, driver);
            line("ring", "in use, says the driver", 0, driver);
            out.push_str("</div>\n</section>\n");
        }
        None if on_host => out.push_str("</div>\n</section>\n"),
        None => out.push_str("</div>\n<p class=\"note\">The driver does not say what is in use.</p>\n</section>\n"),
    }
}

fn composition(out: &mut String, result: &Value) {
    let (peak, after) = (&result["peak"]["by_category"], &result["by_category"]);
    let Some(categories) = peak.as_object() else { return };
    let total: u64 = categories.values().filter_map(Value::as_u64).sum();
    let mut names: Vec<&String> = categories.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(categories[*name].as_u64()));
    let share = |part: u64| Cell::share(part, total);
    let there = names.into_iter().filter(|name| peak[*name] != 0 || after[*name].as_u64().is_some_and(|n| n > 0));
    let mut rows: Vec<Vec<Cell>> = there
        .map(|name| {
            let at_peak = peak[name].as_u64().unwrap_or(0);
            vec![
                Cell::text(&name.replace('_', " ")),
                Cell::bytes(at_peak),
                share(at_peak),
                Cell::bytes_of(&after[name]),
            ]
        })
        .collect();
    let held: u64 = after.as_object().map_or(0, |after| after.values().filter_map(Value::as_u64).sum());
    rows.push(vec![Cell::text("total"), Cell::bytes(total), share(total), Cell::bytes(held)]);
    let columns = ["category", "at the peak", "share", "after the last step"].map(String::from);
    table(out, "What the peak consisted of", &columns, &rows);
}

fn modules(out: &mut String, by_scope: &Value) {
    let row = |row: &Value| {
        let held = row["by_category"].as_object()?;
        let total: u64 = held.values().filter_map(Value::as_u64).sum();
        let mostly = held.iter().max_by_key(|(_, bytes)| bytes.as_u64()).map_or("", |(name, _)| name);
        let scope = row["scope"].as_str().filter(|scope| !scope.is_empty()).unwrap_or("(outside the model)");
        Some(vec![Cell::text(scope), Cell::bytes(total), Cell::text(&mostly.replace('_', " "))])
    };
    let rows: Vec<Vec<Cell>> = list(by_scope).iter().filter_map(row).collect();
    table(out, "Who held most of it", &["module", "at the peak", "mostly"].map(String::from), &rows);
}

fn peaks(out: &mut String, peaks: &Value) {
    let text = |value: &Value| Cell::text(value.as_str().unwrap_or_default());
    let row =
        |s: &Value| vec![text(&s["phase"]), Cell::bytes_of(&s["allocated_bytes"]), text(&s["op"]), text(&s["scope"])];
    let rows: Vec<Vec<Cell>> = list(peaks).iter().map(row).collect();
    let columns = ["phase", "allocated", "reached by", "of"].map(String::from);
    table(out, "The peak and the next moments below it", &columns, &rows);
}

fn techniques(out: &mut String, result: &Value) {
    let all = list(&result["techniques"]);
    let limited = all.iter().any(|technique| technique["fits"].is_boolean());
    let mut columns = ["name", "peak", "reserved"].map(String::from).to_vec();
    columns.extend(limited.then(|| ["reserved here", "fits"].map(String::from)).into_iter().flatten());
    columns.push("reason".into());
    let row = |technique: &Value| {
        let text = |value: &Value| Cell::text(value.as_str().unwrap_or_default());
        let mut row = vec![text(&technique["name"])];
        row.extend(["peak_bytes", "reserved_bytes"].map(|key| Cell::bytes_of(&technique[key])));
        if limited {
            row.push(Cell::bytes_of(&technique["reserved_here_bytes"]));
            let missing = technique["missing_bytes"].as_u64();
            let missing = missing.map_or("no".into(), |more| format!("no: {} more", crate::figures::short(more)));
            row.push(Cell::text(match technique["fits"].as_bool() {
                Some(true) => "yes",
                Some(false) => &missing,
                None => "",
            }));
        }
        let notes = list(&technique["warnings"]).iter().chain([&technique["reason"]]).filter_map(Value::as_str);
        row.push(Cell::text(&notes.collect::<Vec<_>>().join("; ")));
        row
    };
    let rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    table(out, "What each technique would change", &columns, &rows);
}

/// Rows of a table that a page shows; the rest is in the JSON.
const MAX_ROWS: usize = 400;

fn rows_table(out: &mut String, result: &Value) {
    let all = list(&result["steps"]);
    let row = |row: &Value| {
        let label = Cell::text(row[0].as_str().unwrap_or_default());
        let figures = [1, 5, 3].map(|i| Cell::bytes_of(&row[i]));
        std::iter::once(label).chain(figures).collect()
    };
    let rows: Vec<Vec<Cell>> = all.iter().take(MAX_ROWS).map(row).collect();
    let columns = ["phase", "allocated", "peak in phase", "reserved"].map(String::from);
    let _ = writeln!(out, "<details><summary>Memory by phase: {}</summary>", counted(all.len(), "row"));
    table(out, "Memory by phase", &columns, &rows);
    if all.len() > MAX_ROWS {
        let _ = writeln!(out, "<p class=\"note\">The first {MAX_ROWS}; --json has all.</p>");
    }
    out.push_str("</details>\n");
}

fn rows_chart(out: &mut String, result: &Value) {
    let all = list(&result["steps"]);
    if all.len() < 2 {
        return;
    }
    let points = |index: usize| all.iter().enumerate().map(|(i, row)| (i as f64, column(row, index) as f64)).collect();
    let series = |name: &str, index, color, shape| Series { name: name.into(), points: points(index), color, shape };
    let chart = Chart {
        title: "Memory after each phase".into(),
        x: "phases".into(),
        labels: all.iter().map(|row| row[0].as_str().unwrap_or_default().to_string()).collect(),
        series: vec![
            series("reserved", 3, 7, Shape::Steps),
            series("peak in phase", 5, 1, Shape::Steps),
            series("allocated", 1, 0, Shape::Steps),
        ],
        bytes: true,
        limit: None,
    };
    out.push_str("<section>\n<h2>Memory over the run</h2>\n");
    chart.draw(out);
    out.push_str("</section>\n");
}

fn losses(out: &mut String, losses: &Value) {
    let points: Vec<(f64, f64)> =
        list(losses).iter().enumerate().filter_map(|(i, loss)| Some((i as f64, loss.as_f64()?))).collect();
    if points.len() < 3 {
        return;
    }
    let series = Series { name: "loss".into(), points, color: 0, shape: Shape::Line };
    let chart = Chart {
        title: "Loss at each step".into(),
        x: "step".into(),
        labels: Vec::new(),
        series: vec![series],
        bytes: false,
        limit: None,
    };
    out.push_str("<section>\n<h2>Loss</h2>\n");
    chart.draw(out);
    out.push_str("</section>\n");
}
