//! Collects criterion's folder into one file of results.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

/// Returns all benchmarks in a folder of criterion, and the rows that benchmarks wrote next to it, by name.
///
/// # Errors
/// Files that cannot be read, or were not written by criterion.
pub fn rows(criterion: &Path) -> anyhow::Result<Vec<Value>> {
    let mut rows = left(criterion, "row-")?;
    walk(criterion, &mut rows)?;
    rows.sort_by(|a, b| a["bench"].as_str().cmp(&b["bench"].as_str()));
    Ok(rows)
}

fn walk(folder: &Path, rows: &mut Vec<Value>) -> anyhow::Result<()> {
    let new = folder.join("new");
    if new.join("benchmark.json").is_file() {
        rows.push(row(&read(&new.join("benchmark.json"))?, &read(&new.join("estimates.json"))?));
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, rows)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// One benchmark: the median of a run in nanoseconds, and the work of a run.
fn row(benchmark: &Value, estimates: &Value) -> Value {
    let median = &estimates["median"];
    let bounds = &median["confidence_interval"];
    let throughput = &benchmark["throughput"];
    let both = &throughput["ElementsAndBytes"];
    let first = |values: &[&Value]| values.iter().find_map(|value| value.as_u64());
    let elements = first(&[&throughput["Elements"], &both["elements"]]);
    let bytes = first(&[&throughput["Bytes"], &throughput["BytesDecimal"], &both["bytes"]]);
    let mut row = Map::new();
    row.insert("bench".into(), benchmark["full_id"].clone());
    row.insert("ns".into(), rounded(&median["point_estimate"]));
    row.insert("ns_low".into(), rounded(&bounds["lower_bound"]));
    row.insert("ns_high".into(), rounded(&bounds["upper_bound"]));
    for (name, value) in [("elements", elements), ("bytes", bytes)] {
        row.extend(value.map(|value| (name.to_string(), value.into())));
    }
    Value::Object(row)
}

/// Rounds a value: criterion writes all digits of a float.
fn rounded(value: &Value) -> Value {
    value.as_f64().map_or(Value::Null, |x| json!((x * 1000.0).round() / 1000.0))
}

/// Rooflines that the kernels' benchmark wrote, by device.
///
/// # Errors
/// Files that cannot be read.
pub fn roofs(criterion: &Path) -> anyhow::Result<Vec<Value>> {
    let mut found = left(criterion, "roofs-")?;
    found.sort_by(|a, b| a["device"].as_str().cmp(&b["device"].as_str()));
    Ok(found)
}

/// Contents of the files whose names begin with `prefix`.
fn left(criterion: &Path, prefix: &str) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(criterion).with_context(|| criterion.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(prefix) && path.is_file() {
            found.push(read(&path)?);
        }
    }
    Ok(found)
}

/// The text of a file of results: one row per line, so that two files can be compared.
pub fn text(head: &Map<String, Value>, rows: &[Value]) -> String {
    let mut out = String::from("{");
    for (name, value) in head {
        let _ = writeln!(out, "\"{name}\": {value},");
    }
    out.push_str("\"rows\": [\n");
    for (i, row) in rows.iter().enumerate() {
        let comma = if i + 1 < rows.len() { "," } else { "" };
        let _ = writeln!(out, "{row}{comma}");
    }
    out.push_str("]}\n");
    out
}
