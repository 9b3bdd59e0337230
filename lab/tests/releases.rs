//! Snapshots that releases of PyTorch wrote with the default settings of their recorder: read, and replayed.

use flate2::read::GzDecoder;
use lab::replay::{Machine, Policy};
use lab::snapshot::{Snapshot, agreement};

const RELEASES: [&str; 12] = ["2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"];

fn snapshot(release: &str) -> Snapshot {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/snapshots/defaults");
    let path = format!("{folder}/torch-{release}.pickle.gz");
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Snapshot::read(&path, GzDecoder::new(file)).unwrap()
}

#[test]
fn the_snapshot_of_every_release_is_replayed_exactly() {
    for release in RELEASES {
        let snapshot = snapshot(release);
        let program = snapshot.program(release, 0).unwrap();
        assert_eq!((program.before, program.gaps), (0, 0), "{release}");
        let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
        let machine = Machine { capacity_bytes: program.trace.settings.capacity_bytes, memory_fraction: None };
        let found = agreement(&snapshot, 0, &program, &policy, &machine).unwrap();
        assert!(found.is_exact() && found.segments > 0 && found.allocations > 100, "{release}: {found:?}");
    }
}

#[test]
fn snapshots_of_2_12_are_known_by_their_keys() {
    let of_2_12 = RELEASES.into_iter().filter(|release| snapshot(release).of_2_12);
    assert_eq!(of_2_12.collect::<Vec<_>>(), ["2.12"]);
}
