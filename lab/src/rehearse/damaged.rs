//! Tests with damaged answers: whatever a script's processes write, a rehearsal ends with a result.

use std::fs;
use std::path::{Path, PathBuf};

use lab_base::section::Section;
use lab_results::Findings;
use proptest::prelude::*;

use super::changed::Before;
use super::collect::collect;
use super::folder::Folder;
use super::open::Caches;
use super::request::{Request, RequestedCard};
use super::run::{Ending, Followed, Ran};

const PID: u32 = 7;
const ANSWER: &str = r#"{"pid": 7, "rank": 0, "world": 2, "why": "steps", "steps": 3, "torch": "2.11.0+cu130", "entries": 1000000,
 "cards": [{"index": 0, "peak_allocated": 68264960, "peak_reserved": 90177536, "ooms": 1}, {"index": 1, "peak_allocated": 5, "peak_reserved": 6}],
 "seen": {"evaluation": true, "saving": false, "generation": false},
 "held": [{"time_us": 1700000000000000, "parameter": [140000000000512], "gradient": [140000000001024], "optimizer": [140000000001536]}],
 "backward": [[1700000000000000, 1700000000000100], [1700000000000200, null]], "inputs": [[140000000000512, 1700000000000000]],
 "oom": {"card": 0, "requested": 3221225472, "free": 1213194240, "allocated": 2346147, "reserved": 2349334, "count": 1, "where": "train.py:7", "step": 1},
 "exception": {"type": "OutOfMemoryError", "message": "CUDA out of memory.", "out_of_memory": true}, "compiled": {"new": 2},
 "values": {"places": [{"event": "unknown_read", "where": "train.py:9", "inside": "loss.py:2", "operator": "item", "kind": "size", "bytes": 4,
   "answer": "zeros", "count": 3}], "beyond": 1}, "withheld": ["out/model.safetensors"]}"#;
const LOG: &str = "{\"event\": \"unknown_size\", \"name\": \"cudnn execution plan\"}\n{\"event\": \"unknown_read\", \"name\": \"item\"}\n";
/// Numbers that break careless sums and indices.
const EXTREMES: [&str; 9] = [
    "0",
    "-1",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "4294967296",
    "null",
    "\"7\"",
];

/// Damage to a text.
#[derive(Clone, Debug)]
enum Change {
    /// Replaces a byte.
    Byte(usize, u8),
    /// Replaces a number by one of [`EXTREMES`].
    Number(usize, usize),
    /// Removes a piece.
    Cut(usize, usize),
    /// Removes everything from a place on.
    Truncate(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || any::<usize>();
    prop_oneof![
        2 => (place(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        6 => (place(), place()).prop_map(|(at, which)| Change::Number(at, which)),
        1 => (place(), 1..40usize).prop_map(|(at, length)| Change::Cut(at, length)),
        1 => place().prop_map(Change::Truncate),
    ]
}

fn changed(text: &str, changes: &[Change]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for change in changes {
        let length = bytes.len().max(1);
        match *change {
            Change::Byte(at, byte) => bytes.iter_mut().skip(at % length).take(1).for_each(|old| *old = byte),
            Change::Number(at, which) => {
                let is_digit = |i: &usize| bytes.get(*i).is_some_and(u8::is_ascii_digit);
                let Some(from) = (at % length..length).find(is_digit) else { continue };
                let end = (from..bytes.len()).find(|i| !is_digit(i)).unwrap_or(bytes.len());
                bytes.splice(from..end, EXTREMES[which % EXTREMES.len()].bytes());
            }
            Change::Cut(at, count) => {
                let from = at % length;
                bytes.drain(from.min(bytes.len())..(from + count).min(bytes.len()));
            }
            Change::Truncate(at) => bytes.truncate(at % length),
        }
    }
    bytes
}

pub(super) fn request() -> Request {
    Request::new(vec!["python".into(), "train.py".into()], RequestedCard::of_bytes(24 << 30))
}

/// Collects a result from these files, and draws it. Returns the number of its sections that are not notes.
fn sections(answer: &[u8], log: &[u8], snapshot: &Path) -> usize {
    let request = request();
    let folder = Folder::make(Path::new("/nonexistent/library"), &request).unwrap();
    fs::write(folder.answers().join(format!("{PID}.json")), answer).unwrap();
    fs::write(folder.answers().join(format!("{PID}.started")), "{\"torch\": \"2.11.0\", \"cuda\": \"13.0\"}").unwrap();
    fs::copy(snapshot, folder.answers().join(format!("{PID}.pickle"))).unwrap();
    fs::write(folder.log(), log).unwrap();
    let followed = Followed { ending: Ending::Steps, exit: None };
    let ran = Ran { followed, keeper: None, before: Before::look(Vec::new(), Vec::new()) };
    let found = collect(&request, folder, &Caches::find(), ran, 1).unwrap();
    // A snapshot that another process names cannot be drawn. The error is a valid outcome.
    let _ = found.recording();
    found.result.sections().iter().filter(|section| !matches!(section, Section::Note(_))).count()
}

pub(super) fn snapshot() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/tests/golden/snapshots/cnn_b128_stacks.pickle")
}

#[test]
fn what_is_whole_is_understood() {
    assert!(sections(ANSWER.as_bytes(), LOG.as_bytes(), &snapshot()) > 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn whatever_is_changed_a_rehearsal_has_an_answer(
        answer in proptest::collection::vec(change(), 1..6),
        log in proptest::collection::vec(change(), 0..3),
    ) {
        prop_assert!(sections(&changed(ANSWER, &answer), &changed(LOG, &log), &snapshot()) > 0);
    }
}
