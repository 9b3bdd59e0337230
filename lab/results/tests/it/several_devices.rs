//! Snapshots of several devices: which one is shown, and that the others are named. And snapshots of Intel's devices.

use lab_base::section::Section;
use lab_results::{ChosenDevice, Findings, Looked, SnapshotResult};
use lab_traces::replay::{Machine, Policy};
use lab_traces::snapshot::{Release, Snapshot, agreement};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A trace that takes so many segments of 20 MiB, one block each, and then fails if asked to.
fn trace(segments: u64, fails: bool, start_us: u64) -> Vec<Value> {
    let entry = |action: &str, address: u64, size: u64, time: u64| json!({ "action": action, "addr": address, "size": size, "stream": 0, "time_us": time });
    let mut out = Vec::new();
    for at in 0..segments {
        let address = (1 << 40) + at * 20 * MIB;
        let time = start_us + 2 * at;
        out.extend([entry("segment_alloc", address, 20 * MIB, time), entry("alloc", address, 9 * MIB, time + 1)]);
    }
    if fails {
        out.push(
            json!({ "action": "oom", "device_free": MIB, "size": 64 * MIB, "stream": 0, "time_us": start_us + 1000 }),
        );
    }
    out
}

fn segments(device: u64, count: u64) -> Vec<Value> {
    let segment = |at: u64| {
        let blocks = json!([
            { "size": 9 * MIB, "requested_size": 9 * MIB, "state": "active_allocated" },
            { "size": 11 * MIB, "requested_size": 0, "state": "inactive" },
        ]);
        json!({ "device": device, "address": (1u64 << 40) + at * 20 * MIB, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks })
    };
    (0..count).map(segment).collect()
}

/// A snapshot of devices: number of segments, and whether memory ran out.
fn snapshot(devices: &[(u64, bool)]) -> Snapshot {
    let traces: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(at, &(count, fails))| trace(count, fails, 100_000 * (at as u64 + 1)))
        .collect();
    let segments: Vec<_> =
        devices.iter().enumerate().flat_map(|(at, &(count, _))| segments(at as u64, count)).collect();
    let text = json!({ "segments": segments, "device_traces": traces }).to_string();
    Snapshot::read("devices.json", text.as_bytes()).unwrap()
}

#[test]
fn the_device_that_ran_out_is_shown_else_the_fullest() {
    // The longest trace is device 0's.
    assert_eq!(snapshot(&[(9, false), (2, true), (3, false)]).main_device(), 1);
    // Of two that ran out, the last.
    assert_eq!(snapshot(&[(2, true), (9, false), (1, true)]).main_device(), 2);
    assert_eq!(snapshot(&[(2, false), (5, false), (4, false)]).main_device(), 1);
    assert_eq!(snapshot(&[(4, false), (4, false)]).main_device(), 0);
    assert_eq!(snapshot(&[(0, false), (1, false)]).main_device(), 1);
    assert_eq!(snapshot(&[]).main_device(), 0);
}

#[test]
fn the_other_devices_are_named_in_one_line() {
    let snapshot = snapshot(&[(9, false), (2, true), (0, false), (1, false)]);
    let found = SnapshotResult::new("devices.pickle".into(), &snapshot, snapshot.main_device(), &Looked::default());
    assert!(found.title().contains("out of memory"), "{}", found.title());
    let notes: Vec<_> = found
        .sections()
        .into_iter()
        .filter_map(|section| match section {
            Section::Note(note) => Some(note),
            _ => None,
        })
        .collect();
    let line = "This is device 1. The file also has devices 0 (180 MiB reserved), 3 (20 MiB reserved): --device N.";
    assert!(notes.iter().any(|note| note == line), "{notes:?}");
    // With one device there is nothing to say.
    let one = self::snapshot(&[(1, false), (0, false)]);
    let found = SnapshotResult::new("one.pickle".into(), &one, 0, &Looked::default());
    assert!(found.other_devices.is_empty() && ChosenDevice::from_snapshot(&one, 0).others.is_empty());
    let recording = lab_results::report::Recording::of_snapshot("devices.pickle", &snapshot, 1);
    assert_eq!(recording.name, "devices.pickle, device 1 (others: 0, 3)");
}

/// Snapshots of `torch.xpu.memory._dump_snapshot` (torch 2.11): entries without a stack have no key for it, settings have two keys.
#[test]
fn snapshots_of_intels_devices_are_read_and_replayed() {
    let text = json!({
        "segments": segments(0, 1),
        "device_traces": [trace(1, false, 10)],
        "allocator_settings": { "PYTORCH_ALLOC_CONF": "", "expandable_segments": false },
    });
    let snapshot = Snapshot::read("xpu.json", text.to_string().as_bytes()).unwrap();
    assert_eq!((snapshot.releases.oldest, snapshot.releases.newest), (Release(2, 11), Release(2, 15)));
    let program = snapshot.program("xpu", 0).unwrap();
    let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
    let found = agreement(&snapshot, 0, &program, &policy, &Machine::default()).unwrap();
    assert!(found.is_exact() && found.allocations == 1, "{found:?}");
}
