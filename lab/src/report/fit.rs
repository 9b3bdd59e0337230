//! What fits (`vramlab-fit-1`): the law of the peak beside the runs that verify it.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::chart::{Chart, Series, Shape};
use super::command;
use super::table::{Cell, list, premises, settings, table, warnings};
use super::text::{bytes, element, escaped, grouped};

/// Points of the law's line.
const POINTS: u64 = 160;

/// Rows that a table has before it is folded away.
const MANY: usize = 12;

/// Writes the part.
pub(super) fn show(out: &mut String, result: &Value) {
    let of = result["of"].as_str().unwrap_or("batch");
    let budget = result["budget_bytes"].as_u64().unwrap_or(0);
    let card = result["card"]["title"].as_str().map_or(String::new(), |card| format!(" on {}", escaped(card)));
    out.push_str("<header>\n");
    element(out, "h1", &format!("The largest {of} that fits"));
    let _ = writeln!(
        out,
        "<p class=\"lead\">{}<br>in {}{card}</p>\n</header>\n<dl class=\"figures\">",
        escaped(result["model"].as_str().unwrap_or_default()),
        bytes(budget)
    );
    let largest = result["largest"].as_u64().map_or_else(|| "none fits".into(), grouped);
    let _ = writeln!(out, "<div><dt>largest {}</dt><dd>{largest}</dd></div>\n</dl>", escaped(of));
    premises(out, result);
    warnings(out, result);
    law(out, result, of, budget);
    runs(out, result, of);
    let in_force = result["settings"].as_object();
    settings(out, in_force, &command::again(&["fit"], in_force.unwrap_or(&Map::new())));
}

/// constant + slope·n + square·n², of the piece that holds n.
fn at(pieces: &[Value], n: u64) -> Option<f64> {
    let inside = |piece: &&Value| piece["from"].as_u64() <= Some(n) && Some(n) <= piece["to"].as_u64();
    let piece = pieces.iter().find(inside)?;
    let (x, of) = (n as f64, |key: &str| piece[key].as_f64().unwrap_or(0.0));
    Some(of("constant") + of("slope") * x + of("square") * x * x)
}

fn law(out: &mut String, result: &Value, of: &str, budget: u64) {
    let pieces = list(&result["law"]["pieces"]);
    let ends = |key: &'static str| pieces.iter().filter_map(move |piece| piece[key].as_u64());
    let (Some(first), Some(last)) = (ends("from").min(), ends("to").max()) else { return };
    let mut sizes: Vec<u64> = ends("from").chain(ends("to")).collect();
    let step = ((last - first) / POINTS).max(1);
    sizes.extend((0..=POINTS).map(|k| first.saturating_add(k * step)).take_while(|n| *n <= last));
    sizes.sort_unstable();
    sizes.dedup();
    let line = sizes.iter().filter_map(|&n| Some((n as f64, at(pieces, n)?))).collect();
    let measured = |key: &str| -> Vec<(f64, f64)> {
        let point = |run: &Value| Some((run["size"].as_f64()?, run[key].as_f64()?));
        list(&result["runs"]).iter().filter_map(point).collect()
    };
    let series = |name: &str, points, color, shape| Series { name: name.into(), points, color, shape };
    let chart = Chart {
        title: format!("The peak by {of}: the law, and the runs that verify it"),
        x: of.into(),
        labels: Vec::new(),
        series: vec![
            series("law (asked for)", line, 0, Shape::Predicted),
            series("allocated", measured("peak_allocated_bytes"), 0, Shape::Dots),
            series("reserved", measured("peak_reserved_bytes"), 1, Shape::Dots),
        ],
        bytes: true,
        limit: (budget > 0).then(|| ("what there is".to_string(), budget as f64)),
    };
    out.push_str("<section>\n<h2>The law of the peak</h2>\n");
    chart.draw(out);
    let row = |piece: &Value| {
        let (from, to) = (piece["from"].as_u64().unwrap_or(0), piece["to"].as_u64().unwrap_or(0));
        let name = if from == to { from.to_string() } else { format!("{from}–{to}") };
        let who = ["phase", "op", "scope"].map(|key| piece[key].as_str().unwrap_or_default());
        vec![
            Cell::text(&name),
            Cell::bytes_of(&piece["constant"]),
            Cell::bytes_of(&piece["slope"]),
            Cell::bytes_of(&piece["square"]),
            Cell::text(&who.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join(" · ")),
        ]
    };
    outline(out, list(&result["law"]["outline"]), of);
    let columns = [of, "constant", "per one more", "by its square", "highest when"].map(String::from);
    let _ = writeln!(out, "<details><summary>Exactly: its pieces</summary>");
    table(out, "Its pieces", &columns, &pieces.iter().map(row).collect::<Vec<_>>());
    out.push_str("</details>\n</section>\n");
}

/// The law in few lines, where it has such.
fn outline(out: &mut String, stretches: &[Value], of: &str) {
    if stretches.is_empty() {
        return;
    }
    let row = |stretch: &Value| {
        let (from, to) = (stretch["from"].as_u64().unwrap_or(0), stretch["to"].as_u64().unwrap_or(0));
        let alone = from == to;
        vec![
            Cell::text(&if alone { from.to_string() } else { format!("{from}–{to}") }),
            Cell::bytes_of(&stretch["bytes"]),
            if alone { Cell::text("–") } else { Cell::bytes_of(&stretch["slope"]) },
            Cell::bytes_of(&stretch["off_bytes"]),
        ]
    };
    let columns = [of, "at the first", "each one more", "to within"].map(String::from);
    table(out, "In few lines", &columns, &stretches.iter().map(row).collect::<Vec<_>>());
}

fn runs(out: &mut String, result: &Value, of: &str) {
    let row = |run: &Value| {
        let fits = match (run["fits"].as_bool(), run["missing_bytes"].as_u64()) {
            (Some(true), _) => "fits".to_string(),
            (_, Some(more)) => format!("no: {} more", crate::figures::short(more)),
            _ => "no".to_string(),
        };
        vec![
            Cell::count(run["size"].as_u64().unwrap_or(0)),
            Cell::text(&fits),
            Cell::bytes_of(&run["law_requested_bytes"]),
            Cell::bytes_of(&run["peak_allocated_bytes"]),
            Cell::bytes_of(&run["peak_reserved_bytes"]),
        ]
    };
    let rows: Vec<Vec<Cell>> = list(&result["runs"]).iter().map(row).collect();
    let many = rows.len() > MANY;
    out.push_str("<section>\n");
    if many {
        let _ = writeln!(out, "<details><summary>Verified by {} runs on a device of that size</summary>", rows.len());
    }
    let columns = [of, "under that limit", "law", "allocated", "reserved"].map(String::from);
    table(out, "Verified: runs on a device of that size", &columns, &rows);
    if many {
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}
