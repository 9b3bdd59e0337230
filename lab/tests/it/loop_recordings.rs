//! Recordings of `scripts/loop` in `golden/`, and the comparison of a run's rows with them.

use std::io::Read;

use flate2::read::GzDecoder;
use lab::record::{COLUMNS, Row};
use serde_json::Value;

/// Reads a recording.
pub(crate) fn recording(name: &str) -> Value {
    let path = format!("{}/tests/golden/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Fails with every figure that differs, up to the last row of the last step.
pub(crate) fn compare(name: &str, ours: &[Row], recording: &Value) {
    compare_columns(name, ours, recording, &COLUMNS[1..]);
}

/// Fails with every figure of these columns that differs.
pub(crate) fn compare_columns(name: &str, ours: &[Row], recording: &Value, columns: &[&str]) {
    let before = recording["program"]["before"].as_u64().unwrap_or(0);
    let mut theirs: Vec<Row> = serde_json::from_value(recording["steps"].clone()).unwrap();
    assert_eq!(theirs.pop().unwrap().label, "end");
    theirs.iter_mut().for_each(|row| row.n_alloc_plus_free -= before);
    let labels = |rows: &[Row]| rows.iter().map(|row| row.label.clone()).collect::<Vec<String>>();
    assert_eq!(labels(ours), labels(&theirs), "{name}");
    let mut differences = Vec::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        for ((column, here), there) in COLUMNS[1..].iter().zip(ours.figures()).zip(theirs.figures()) {
            if here != there && columns.contains(column) {
                differences.push(format!("{}: {column} {here}, PyTorch {there}", ours.label));
            }
        }
    }
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}
