//! Compares our run with the recorded one: every row in every column, then every event.

use std::collections::BTreeMap;

use lab::record::{COLUMNS, Row};
use memcore::Device;

use super::recording::{RecordedRow, Recording, Step, allocated_by, events, freed_by};

/// Fails with the rows and columns that differ, and with the first event that does.
pub(crate) fn check(name: &str, run: impl Fn(&Device) -> Vec<Row>) {
    compare(name, run, <[Step]>::to_vec);
}

/// As [`check`], for runs under autocast. PyTorch keeps the cached casts in a table of addresses of host memory, and frees them in the order of
/// that table: the frees of one moment have no order there.
pub(crate) fn check_unordered_frees(name: &str, run: impl Fn(&Device) -> Vec<Row>) {
    compare(name, run, sorted_frees);
}

/// As [`check`], without who caused the events, and without an order of the frees of one moment: where no graph is made, PyTorch frees a loss's
/// weight in another function, and the locals of attention in the order of the script.
pub(crate) fn check_figures(name: &str, run: impl Fn(&Device) -> Vec<Row>) {
    let recording = Recording::load(name);
    let device = recording.device();
    let mut rows = run(&device);
    rows.push(Row::take(&device, "end"));
    let mut differences = row_differences(&recording, &rows);
    differences.truncate(20);
    let (theirs, ours) = (sorted_frees(&recording.events()), sorted_frees(&events(&device)));
    differences.extend(event_difference(&recording, 0, &theirs, &ours));
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

fn sorted_frees(events: &[Step]) -> Vec<Step> {
    let mut events = events.to_vec();
    for frees in events.chunk_by_mut(|a, b| matches!((a, b), (Step::Free(_), Step::Free(_)))) {
        frees.sort();
    }
    events
}

/// Returns the differences on one of several devices, up to the last of these rows. The origins of frees are not compared.
pub(crate) fn differences_until(recording: &Recording, device: &Device, rows: &[Row], unordered: bool) -> Vec<String> {
    let mut differences = row_differences(recording, rows);
    differences.truncate(20);
    let made = allocated_by(device);
    let pairs = made.iter().map(String::as_str).zip(recording.allocated_by());
    differences.extend(counted("allocations", pairs.filter(|(ours, theirs)| !same_label(ours, theirs))));
    let last = rows.last().map_or(0, |row| row.n_alloc_plus_free);
    let up_to_there = |events: Vec<Step>| {
        let mut seen = 0;
        let before = move |step: &Step| {
            seen += u64::from(matches!(step, Step::Alloc(_) | Step::Free(_)));
            seen <= last
        };
        let events: Vec<Step> = events.into_iter().take_while(before).collect();
        if unordered { sorted_frees(&events) } else { events }
    };
    let (theirs, ours) = (up_to_there(recording.events()), up_to_there(events(device)));
    differences.extend(event_difference(recording, 0, &theirs, &ours));
    differences
}

/// Compares a run with this recording: rows and events, without their origins. If memory ran out, everything until then. (What is freed when the program is
/// left by an error depends on how it is left.) `unordered_frees`: as in [`check_unordered_frees`].
pub(crate) fn check_drawn(recording: &Recording, name: &str, run: &dyn Fn(&Device) -> Vec<Row>, unordered_frees: bool) {
    let normalised = |events: &[Step]| if unordered_frees { sorted_frees(events) } else { events.to_vec() };
    let ran_out = |events: &[Step]| events.iter().position(|event| matches!(event, Step::Oom(_)));
    let device = recording.device();
    let (mut rows, mut recorded) = (run(&device), recording.rows());
    let mut theirs = recording.events();
    match ran_out(&theirs) {
        Some(end) => {
            recorded.pop();
            theirs.truncate(end + 1);
        }
        None => rows.push(Row::take(&device, "end")),
    }
    let mut ours = events(&device);
    if let Some(end) = ran_out(&ours) {
        ours.truncate(end + 1);
    }
    let mut differences = rows_beside(&rows, &recorded);
    differences.truncate(20);
    if ran_out(&theirs).is_none() {
        differences.extend(label_differences(recording, &device));
    }
    differences.extend(event_difference(recording, 0, &normalised(&theirs), &normalised(&ours)));
    assert!(differences.is_empty(), "{name}, PyTorch {}:\n{}", recording.release(), differences.join("\n"));
}

/// Like [`check`] for a part of the recording, with a program that runs only so far: the rows whose labels begin with `part`, and the
/// events between the row before them and the last of them.
pub(crate) fn check_part(name: &str, part: &str, run: impl Fn(&Device) -> Vec<Row>) {
    let recording = Recording::load(name);
    let device = recording.device();
    let mut rows = run(&device);
    let belongs = |row: &Row| row.label.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
    let first = rows.iter().position(belongs).unwrap_or_else(|| panic!("{name}: no row of {part}"));
    assert!(rows[first..].iter().all(belongs), "{name}: {part} is not the end of what was run");
    let from = first.checked_sub(1).map_or(0, |before| rows[before].n_alloc_plus_free);
    let until = rows.last().map_or(0, |row| row.n_alloc_plus_free);
    let between = |events: Vec<Step>| {
        let mut seen = 0;
        let of_part = move |step: &Step| {
            seen += u64::from(matches!(step, Step::Alloc(_) | Step::Free(_)));
            seen > from && seen <= until
        };
        events.into_iter().filter(of_part).collect::<Vec<Step>>()
    };
    let mut differences = Vec::new();
    let mut recorded = recording.rows();
    recorded.retain(|row| row.label.strip_prefix(part).is_some_and(|rest| rest.starts_with('.')));
    differences.extend(rows_beside(&rows.split_off(first), &recorded));
    differences.truncate(20);
    let (theirs, ours) = (between(recording.events()), between(events(&device)));
    differences.extend(event_difference(&recording, from as usize, &theirs, &ours));
    assert!(until > from && differences.is_empty(), "{name}, {part}:\n{}", differences.join("\n"));
}

/// For each release of PyTorch with a recording.
fn compare(name: &str, run: impl Fn(&Device) -> Vec<Row>, normalised: impl Fn(&[Step]) -> Vec<Step>) {
    for recording in std::iter::once(Recording::load(name)).chain(Recording::of_others(name)) {
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
    differences.extend(label_differences(recording, &device));
    let theirs = normalised(&recording.events());
    differences.extend(event_difference(recording, 0, &theirs, &normalised(&events(&device))));
    let (release, env) = (recording.release(), recording.environment());
    assert!(differences.is_empty(), "{name}, PyTorch {release}, {env}:\n{}", differences.join("\n"));
}

pub(crate) fn row_differences(recording: &Recording, rows: &[Row]) -> Vec<String> {
    rows_beside(rows, &recording.rows())
}

fn rows_beside(rows: &[Row], recorded: &[RecordedRow]) -> Vec<String> {
    let mut differences = Vec::new();
    for (ours, theirs) in rows.iter().zip(recorded) {
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

/// Compares the origins of allocations and frees with those in a profiler's output. Returns each difference once, with its count.
fn label_differences(recording: &Recording, device: &Device) -> Vec<String> {
    let ours = allocated_by(device);
    let pairs = ours.iter().map(String::as_str).zip(recording.allocated_by());
    let mut differences = counted("allocations", pairs.filter(|(ours, theirs)| !same_label(ours, theirs)));
    let ours = freed_by(device);
    let same = |(ours, theirs): &((u64, &str), (u64, &str))| ours.0 == theirs.0 && same_free(ours.1, theirs.1);
    let pairs = ours.iter().map(|(id, label)| (*id, label.as_str())).zip(recording.freed_by());
    differences.extend(counted("frees", pairs.filter(|pair| !same(pair)).map(|(ours, theirs)| (ours.1, theirs.1))));
    differences
}

/// Each pair of labels, ours and PyTorch's, with its count.
fn counted<'a>(what: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    pairs.for_each(|pair| *counts.entry(pair).or_default() += 1);
    counts.into_iter().map(|((ours, theirs), n)| format!("{n} {what} by {ours:?}, PyTorch {theirs:?}")).collect()
}

/// PyTorch's accumulation of gradients has a longer name.
fn same_free(ours: &str, theirs: &str) -> bool {
    let ours = &shortened(ours);
    ours == theirs
        || ours.replace(">to>_to_copy", ">_to_copy") == theirs
        || format!("torch::autograd::{ours}") == theirs
}

/// Data that the recorded scripts drew on the device are copied to it here, or made by the test itself. Inside of some operators PyTorch's casts call the
/// inner operator at once, and its module for ReLU6 calls another operator than its function.
fn same_label(ours: &str, theirs: &str) -> bool {
    let ours = &shortened(ours).replace("relu6>hardtanh", "hardtanh");
    let data = ["randn", "randint", "ones_like"].contains(&theirs) && ["", "to>_to_copy"].contains(&ours.as_str());
    data || ours == theirs || ours.replace(">to>_to_copy", ">_to_copy") == theirs
}

/// Of a path of more than three names, the recordings have the first two and the last.
fn shortened(label: &str) -> String {
    match label.split('>').collect::<Vec<_>>()[..] {
        [first, second, _, .., last] => format!("{first}>{second}>{last}"),
        _ => label.to_string(),
    }
}

/// `from`: allocations and frees before the first of these.
fn event_difference(recording: &Recording, from: usize, theirs: &[Step], ours: &[Step]) -> Option<String> {
    let first = (0..theirs.len().max(ours.len())).find(|&i| ours.get(i) != theirs.get(i))?;
    let before = &theirs[..first.min(theirs.len())];
    let allocs_and_frees = before.iter().filter(|step| matches!(step, Step::Alloc(_) | Step::Free(_))).count();
    let near = |events: &[Step]| {
        let part = &events[first.saturating_sub(4).min(events.len())..(first + 8).min(events.len())];
        part.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>().join(" ")
    };
    let by = recording.made_by().get(from + allocs_and_frees).copied().unwrap_or_default().to_string();
    let (of, here, there) = (theirs.len(), near(ours), near(theirs));
    Some(format!("event {first} of {of}, by {by:?}\n  recorded {there}\n  here     {here}"))
}
