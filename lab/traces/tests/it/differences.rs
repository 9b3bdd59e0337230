//! Where two recordings begin to differ.

use lab_traces::snapshot::Snapshot;
use lab_traces::stacks::{Differences, First, differences};

/// One thing that happens: memory is taken by a line and an operator, or given back.
enum Event {
    Takes { block: u64, bytes: u64, line: i64, operator: &'static str },
    Frees(u64),
}

use Event::{Frees, Takes};

fn takes(block: u64, bytes: u64, line: i64, operator: &'static str) -> Event {
    Takes { block, bytes, line, operator }
}

/// A recording of a script of this name.
fn recording(script: &str, events: &[Event]) -> Snapshot {
    let entry = |event: &Event| {
        let entry = |action: &str, block: u64, bytes: u64, frames: String| {
            let address = (block + 1) << 32;
            format!(
                r#"{{"action": "{action}", "addr": {address}, "size": {bytes}, "stream": 0, "frames": [{frames}]}}"#
            )
        };
        match event {
            Takes { block, bytes, line, operator } => {
                let operator = format!(r#"{{"filename": "/torch/nn/functional.py", "line": 1, "name": "{operator}"}}"#);
                let line = format!(r#"{{"filename": "/home/u/{script}", "line": {line}, "name": "<module>"}}"#);
                entry("alloc", *block, *bytes, format!("{operator}, {line}"))
            }
            Frees(block) => {
                [entry("free_requested", *block, 0, String::new()), entry("free_completed", *block, 0, String::new())]
                    .join(", ")
            }
        }
    };
    let entries: Vec<String> = events.iter().map(entry).collect();
    let text = format!(r#"{{"segments": [], "device_traces": [[{}]]}}"#, entries.join(", "));
    Snapshot::read(script, text.as_bytes()).unwrap()
}

fn between(one: &[Event], other: &[Event]) -> Differences {
    differences([&recording("before.py", one), &recording("after.py", other)], 0)
}

fn usual() -> Vec<Event> {
    vec![takes(0, 100, 5, "linear"), takes(1, 50, 6, "relu"), Frees(1), takes(2, 20, 7, "linear"), Frees(0), Frees(2)]
}

#[test]
fn another_name_and_moved_lines_are_no_difference() {
    let moved: Vec<Event> = usual()
        .into_iter()
        .map(|event| match event {
            Takes { block, bytes, line, operator } => takes(block, bytes, line + 3, operator),
            frees => frees,
        })
        .collect();
    let found = between(&usual(), &moved);
    assert_eq!((found.first, found.places.len(), found.requests), (None, 0, [3, 3]));
}

#[test]
fn the_first_other_request_is_told_and_only_its_line_differs() {
    let mut other = usual();
    other.insert(3, takes(9, 8, 8, "dropout"));
    // The last line has moved down.
    other[4] = takes(2, 20, 9, "linear");
    let found = between(&usual(), &other);
    let Some(First::Request { equal: 2, asked: [Some(one), Some(other)] }) = &found.first else { panic!("{found:?}") };
    assert_eq!((one.bytes, other.bytes), (20, 8));
    assert_eq!(other.place.operator.as_deref(), Some("dropout"));
    let lines: Vec<i64> = found.places.iter().map(|place| place.place.own.as_ref().unwrap().line).collect();
    assert_eq!((lines, found.requests), (vec![8], [3, 4]));
}

#[test]
fn the_end_of_a_recording_is_a_difference() {
    let found = between(&usual()[..3], &usual());
    assert!(matches!(&found.first, Some(First::Request { equal: 2, asked: [None, Some(_)] })), "{found:?}");
}

#[test]
fn memory_that_lives_longer_is_told_before_what_follows_from_it() {
    let mut other = usual();
    // The second block is freed after the third request, and one of another size follows.
    other.swap(2, 3);
    other.push(takes(5, 1, 10, "sum"));
    let found = between(&usual(), &other);
    let Some(First::Life { before: 1, request, requests: [Some(0), Some(1)] }) = &found.first else {
        panic!("{found:?}")
    };
    assert_eq!((request.bytes, found.peak_bytes), (50, [150, 170]));
}

#[test]
fn without_a_place_that_both_have_sizes_alone_are_compared() {
    let elsewhere = |bytes: u64| {
        vec![
            takes(0, 100, 1, "mm"),
            takes(1, 50, 2, "threshold"),
            Frees(1),
            takes(2, bytes, 3, "mm"),
            Frees(0),
            Frees(2),
        ]
    };
    assert_eq!(between(&usual(), &elsewhere(20)).first, None);
    let found = between(&usual(), &elsewhere(24));
    let Some(First::Request { equal: 2, asked: [Some(one), Some(other)] }) = &found.first else { panic!("{found:?}") };
    assert_eq!((one.bytes, other.bytes), (20, 24));
}
