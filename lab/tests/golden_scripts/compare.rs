//! Our run beside the recorded one: every row in every column, then every event.

use lab::record::{COLUMNS, Row};
use memcore::Device;

use crate::recording::{Recording, Step, events};

/// Fails with the rows and columns that differ, and with the first event that does.
pub(crate) fn check(name: &str, run: impl Fn(&Device) -> Vec<Row>) {
    compare(name, run, <[Step]>::to_vec);
}

/// As [`check`], for runs under autocast. PyTorch keeps the cached casts in a table of addresses of host memory, and lets them go in the order of
/// that table: the frees of one moment have no order there.
pub(crate) fn check_unordered_frees(name: &str, run: impl Fn(&Device) -> Vec<Row>) {
    compare(name, run, |events| {
        let mut events = events.to_vec();
        for frees in events.chunk_by_mut(|a, b| matches!((a, b), (Step::Free(_), Step::Free(_)))) {
            frees.sort();
        }
        events
    });
}

/// As [`check`] for a program that does the beginning of what was recorded: its rows, and the events up to the last of them.
pub(crate) fn check_beginning(name: &str, run: impl Fn(&Device) -> Vec<Row>) {
    let recording = Recording::load(name);
    let device = recording.device();
    let rows = run(&device);
    let mut differences = row_differences(&recording, &rows);
    differences.retain(|difference| !difference.contains(" rows, PyTorch "));
    differences.truncate(20);
    let until = rows.last().map_or(0, |row| row.n_alloc_plus_free);
    let beginning = |events: Vec<Step>| {
        let mut left = until;
        let still = move |step: &Step| {
            let more = left > 0;
            left -= u64::from(more && matches!(step, Step::Alloc(_) | Step::Free(_)));
            more
        };
        events.into_iter().take_while(still).collect::<Vec<Step>>()
    };
    let (theirs, ours) = (beginning(recording.events()), beginning(events(&device)));
    differences.extend(event_difference(&recording, &theirs, &ours));
    assert!(!rows.is_empty() && differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

/// With each release of PyTorch that ran the program.
fn compare(name: &str, run: impl Fn(&Device) -> Vec<Row>, normalised: impl Fn(&[Step]) -> Vec<Step>) {
    for recording in [Some(Recording::load(name)), Recording::of_newer(name)].into_iter().flatten() {
        compare_with(&recording, name, &run, &normalised);
    }
}

fn compare_with(
    recording: &Recording,
    name: &str,
    run: &dyn Fn(&Device) -> Vec<Row>,
    normalised: &dyn Fn(&[Step]) -> Vec<Step>,
) {
    let device = recording.device();
    let mut rows = run(&device);
    rows.push(Row::take(&device, "end"));
    let mut differences = row_differences(recording, &rows);
    differences.truncate(20);
    let theirs = normalised(&recording.events());
    differences.extend(event_difference(recording, &theirs, &normalised(&events(&device))));
    assert!(differences.is_empty(), "{name}, PyTorch {}:\n{}", recording.release(), differences.join("\n"));
}

pub(crate) fn row_differences(recording: &Recording, rows: &[Row]) -> Vec<String> {
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
    differences
}

fn event_difference(recording: &Recording, theirs: &[Step], ours: &[Step]) -> Option<String> {
    let first = (0..theirs.len().max(ours.len())).find(|&i| ours.get(i) != theirs.get(i))?;
    let before = &theirs[..first.min(theirs.len())];
    let allocs_and_frees = before.iter().filter(|step| matches!(step, Step::Alloc(_) | Step::Free(_))).count();
    let near = |events: &[Step]| {
        let part = &events[first.saturating_sub(4).min(events.len())..(first + 8).min(events.len())];
        part.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>().join(" ")
    };
    let by = recording.made_by().get(allocs_and_frees).copied().unwrap_or_default().to_string();
    let (of, here, there) = (theirs.len(), near(ours), near(theirs));
    Some(format!("event {first} of {of}, by {by:?}\n  recorded {there}\n  here     {here}"))
}
