//! Damaged files: after any change, reading ends with an error that names the byte, or with data. It takes
//! memory in proportion to the file.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use lab_traces::replay::Trace;
use lab_traces::snapshot::{Document, Snapshot, write_json, write_pickle};
use proptest::prelude::*;

use crate::alone;
use crate::counting::{LIVE, PEAK};

/// Memory limit for a file of this many bytes: the window, and some hundred bytes for each byte of the file.
fn most(bytes: usize) -> usize {
    (4 << 20) + 200 * bytes
}

/// One change of a file.
#[derive(Clone, Debug)]
enum Change {
    /// Replaces a byte.
    Byte(usize, u8),
    /// Replaces a structural byte: an opcode, a length, a bracket.
    Opcode(usize, usize),
    /// Copies a piece to another position.
    Copy(usize, usize, usize),
    /// Removes a piece.
    Cut(usize, usize),
    /// Truncates the file.
    Truncate(usize),
    /// Makes a length enormous.
    Enormous(usize),
}

const TELLING: &[u8] =
    b"(.}])tuaesdlNX}]hjqrKMJGcRbio\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x93\x94\x95\xff\x00{}[]\",:-0";

fn change() -> impl Strategy<Value = Change> {
    let place = || any::<usize>();
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (place(), place()).prop_map(|(at, which)| Change::Opcode(at, which)),
        (place(), place(), 1..64usize).prop_map(|(from, to, length)| Change::Copy(from, to, length)),
        (place(), 1..64usize).prop_map(|(at, length)| Change::Cut(at, length)),
        place().prop_map(Change::Truncate),
        place().prop_map(Change::Enormous),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let length = bytes.len().max(1);
        match *change {
            Change::Byte(at, byte) => bytes.get_mut(at % length).into_iter().for_each(|old| *old = byte),
            Change::Opcode(at, which) => {
                bytes.get_mut(at % length).into_iter().for_each(|old| *old = TELLING[which % TELLING.len()]);
            }
            Change::Copy(from, to, count) => {
                let from = from % length;
                let piece: Vec<u8> = bytes[from.min(bytes.len())..(from + count).min(bytes.len())].to_vec();
                let to = (to % length).min(bytes.len());
                bytes.splice(to..to, piece);
            }
            Change::Cut(at, count) => {
                let at = (at % length).min(bytes.len());
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            Change::Truncate(at) => bytes.truncate(at % length),
            Change::Enormous(at) => {
                let at = at % length;
                bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff);
            }
        }
    }
    bytes
}

/// Reads and analyzes a file, and writes the result. Fails on panics, endless loops and unlimited memory.
fn survives(bytes: &[u8]) {
    let (start, before) = (Instant::now(), LIVE.load(Relaxed));
    PEAK.store(before, Relaxed);
    match Document::read("f", bytes) {
        Ok((document, _)) => {
            let mut out = Vec::new();
            if write_pickle(&document, &mut out).is_ok() {
                let (again, _) = Document::read("again", out.as_slice()).unwrap();
                assert!(again.equals(&document));
            }
            // Sharing may make JSON large; it is refused, or within the limit.
            let _ = write_json(&document, &mut std::io::sink());
            if let Ok(snapshot) = document.into_snapshot("f") {
                for device in 0..snapshot.devices().min(4) {
                    let _ = (snapshot.totals(device), snapshot.peak(device), snapshot.leftovers(device));
                    let _ = snapshot.program("f", device);
                }
            }
        }
        Err(error) => assert!(error.to_string().starts_with("f: byte "), "{error}"),
    }
    let taken = PEAK.load(Relaxed) - before;
    assert!(taken <= most(bytes.len()), "{taken} bytes of memory for {} of file", bytes.len());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/golden/snapshots/{name}.pickle", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn a_damaged_pickle_is_survived() {
    let _alone = alone();
    let files = ["cnn_b128_stacks", "cnn_b128_plain"].map(golden);
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) }, |(
        which in 0..2usize,
        changes in prop::collection::vec(change(), 1..6),
    )| survives(&changed(files[which].clone(), &changes)));
}

#[test]
fn a_damaged_json_is_survived() {
    let _alone = alone();
    let (document, _) = Document::read("g", golden("cnn_b128_stacks").as_slice()).unwrap();
    let mut text = Vec::new();
    write_json(&document, &mut text).unwrap();
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) }, |(
        changes in prop::collection::vec(change(), 1..6),
    )| survives(&changed(text.clone(), &changes)));
}

#[test]
fn random_opcodes_are_survived() {
    let _alone = alone();
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) }, |(
        opcodes in prop::collection::vec(0..TELLING.len(), 0..300),
    )| {
        let body = opcodes.iter().map(|which| TELLING[*which]);
        survives(&b"\x80\x04".iter().copied().chain(body).collect::<Vec<u8>>());
    });
}

#[test]
fn a_damaged_recording_is_survived() {
    let _alone = alone();
    let trace = br#"{"format":"oracle-trace-1","name":"t","op":"aafaeprf","id":[0,1,0,2,0,0,1,2],"size":[512,1000,7],
        "stream":[0,0,0,1],"seg":[0,0,1]}"#;
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) }, |(
        changes in prop::collection::vec(change(), 1..4),
    )| {
        let bytes = changed(trace.to_vec(), &changes);
        if let Err(error) = Trace::read("f", bytes.as_slice()) {
            assert!(error.to_string().starts_with("f: "), "{error}");
        }
    });
}

#[test]
fn a_snapshot_of_one_list_at_many_places_is_refused() {
    let _alone = alone();
    // A trace of a thousand entries, for a thousand devices in two bytes each.
    let entry = b"}X\x06\x00\x00\x00actionX\x05\x00\x00\x00allocs";
    let mut pickle = b"\x80\x04}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](]\x94(".to_vec();
    (0..1000).for_each(|_| pickle.extend(entry));
    pickle.push(b'e');
    (0..1000).for_each(|_| pickle.extend(b"h\x00"));
    pickle.extend(b"eu.");
    let error = Snapshot::read("f", pickle.as_slice()).unwrap_err().to_string();
    assert!(error.contains("a trace stands at two places"), "{error}");
}
