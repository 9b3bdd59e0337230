//! Snapshots that `scripts/card/snapshots.py` recorded on a real H200 (torch 2.11.0+cu130, 2026-11-27): the driver gave the addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab_traces::replay::{Machine, Policy};
use lab_traces::snapshot::{Agreement, Snapshot, agreement, card_had_room, what_if};
use serde::Deserialize;

/// What PyTorch counted in a recorded program, in bytes.
#[derive(Deserialize)]
struct Counted {
    reserved: u64,
    events: usize,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cards/h200")
}

fn recorded(name: &str) -> Snapshot {
    Snapshot::open(&folder().join(format!("{name}.pickle.gz"))).unwrap()
}

fn checked(name: &str, snapshot: &Snapshot) -> Agreement {
    let program = snapshot.program(name, 0).unwrap();
    let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
    let machine = Machine { capacity_bytes: program.trace.settings.capacity_bytes, memory_fraction: None };
    agreement(snapshot, 0, &program, &policy, &machine).unwrap()
}

#[test]
fn every_recording_of_a_card_is_repeated_with_the_peak_that_pytorch_counted() {
    let counted = std::fs::read_to_string(folder().join("snapshots.json")).unwrap();
    let counted: BTreeMap<String, Counted> = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted.len(), 19);
    for (name, counted) in counted {
        let snapshot = recorded(&name);
        assert_eq!(snapshot.trace(0).len(), counted.events, "{name}");
        let found = checked(&name, &snapshot);
        assert!(found.is_exact() && found.segments > 0 && found.allocations > 10, "{name}: {found:?}");
        assert_eq!(found.peak_reserved, (counted.reserved, counted.reserved), "{name}");
    }
}

/// The script had allowed itself 700 MiB: the card had 130 GiB left.
#[test]
fn a_process_with_a_share_of_its_card_fails_where_it_failed() {
    for name in ["failing", "expandable_failing"] {
        let snapshot = recorded(name);
        let capacity = snapshot.program(name, 0).unwrap().trace.settings.capacity_bytes.unwrap();
        assert!(capacity > 650 << 20 && capacity <= 700 << 20, "{name}: {capacity}");
        let found = what_if(&snapshot, 0, None).unwrap();
        assert!(found.check.is_exact() && found.check.failed == (1, 1), "{name}: {:?}", found.check);
    }
}

#[test]
fn a_segment_of_the_driver_has_to_fit() {
    const MIB: u64 = 1 << 20;
    assert!(!card_had_room(16 * MIB, 19 * MIB, false) && card_had_room(16 * MIB, 20 * MIB, false));
    assert!(!card_had_room(31 * MIB, 31 * MIB, false) && card_had_room(31 * MIB, 32 * MIB, false));
    // Pages of an expandable segment.
    assert!(!card_had_room(31 * MIB, 39 * MIB, true) && card_had_room(31 * MIB, 40 * MIB, true));
    assert!(!card_had_room(u64::MAX, u64::MAX, false));
}
