//! Our run beside the recorded one: every row in every column, then every event.

use lab::record::{COLUMNS, Row};
use memcore::Device;

use crate::recording::{Recording, Step, events};

/// Fails with the rows and columns that differ; where all agree, with the first event that does.
pub(crate) fn check(name: &str, run: impl FnOnce(&Device) -> Vec<Row>) {
    let recording = Recording::load(name);
    let device = recording.device();
    let mut rows = run(&device);
    rows.push(Row::take(&device, "end"));
    compare_rows(name, &recording, &rows);
    compare_events(name, &recording, &events(&device));
}

fn compare_rows(name: &str, recording: &Recording, rows: &[Row]) {
    let recorded = recording.rows();
    let mut differences = Vec::new();
    for (ours, theirs) in rows.iter().zip(&recorded) {
        if ours.label != theirs.label {
            differences.push(format!("label {} where PyTorch's run has {}", ours.label, theirs.label));
        }
        for ((column, ours_value), theirs_value) in COLUMNS[1..].iter().zip(ours.figures()).zip(&theirs.figures) {
            if ours_value != *theirs_value {
                differences.push(format!("{}: {column} {ours_value}, PyTorch {theirs_value}", ours.label));
            }
        }
    }
    if rows.len() != recorded.len() {
        differences.push(format!("{} rows, PyTorch {}", rows.len(), recorded.len()));
    }
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

fn compare_events(name: &str, recording: &Recording, ours: &[Step]) {
    let theirs = recording.events();
    let Some(first) = (0..theirs.len().max(ours.len())).find(|&i| ours.get(i) != theirs.get(i)) else { return };
    let allocs_and_frees = theirs[..first].iter().filter(|step| matches!(step, Step::Alloc(_) | Step::Free(_))).count();
    let near = |events: &[Step]| {
        let part = &events[first.saturating_sub(4).min(events.len())..(first + 8).min(events.len())];
        part.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>().join(" ")
    };
    let by = recording.made_by().get(allocs_and_frees).copied().unwrap_or_default().to_string();
    let (of, here, there) = (theirs.len(), near(ours), near(&theirs));
    panic!("{name}: event {first} of {of}, by {by:?}\n  recorded {there}\n  here     {here}");
}
