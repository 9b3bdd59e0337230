//! Snapshots that releases of PyTorch wrote with the default settings of their recorder: read, and replayed.

use flate2::read::GzDecoder;
use lab_traces::replay::{Machine, Policy};
use lab_traces::snapshot::{Release, Releases, Snapshot, agreement};

const RELEASES: [&str; 12] = ["2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"];

/// Releases whose keys are known from PyTorch's sources alone.
const BY_FORMAT: [&str; 3] = ["2.1", "2.2", "2.3"];

fn snapshot(release: &str) -> Snapshot {
    let folder = if BY_FORMAT.contains(&release) { "by-format" } else { "defaults" };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/snapshots");
    let path = format!("{root}/{folder}/torch-{release}.pickle.gz");
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Snapshot::read(&path, GzDecoder::new(file)).unwrap()
}

#[test]
fn the_snapshot_of_every_release_is_replayed_exactly() {
    for release in BY_FORMAT.into_iter().chain(RELEASES) {
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

#[test]
fn releases_are_known_by_their_keys() {
    let known = |release: &str| snapshot(release).releases;
    let between = |oldest, newest| Releases { oldest: Release(2, oldest), newest: Release(2, newest) };
    assert_eq!(known("2.1"), between(1, 1));
    assert_eq!(known("2.2"), between(2, 2));
    for release in ["2.3", "2.4", "2.7", "2.8"] {
        assert_eq!(known(release), between(3, 8), "{release}");
    }
    assert_eq!(known("2.11"), between(9, 11));
}

#[test]
fn older_recordings_tell_the_same() {
    let of_2_4 = snapshot("2.4");
    for release in BY_FORMAT {
        let older = snapshot(release);
        assert_eq!(older.trace(0).len(), of_2_4.trace(0).len(), "{release}");
        for (ours, theirs) in older.trace(0).iter().zip(of_2_4.trace(0)) {
            assert_eq!(
                (ours.action, ours.address, ours.bytes),
                (theirs.action, theirs.address, theirs.bytes),
                "{release}"
            );
            assert_eq!(ours.time_us, if release == "2.1" { 0 } else { theirs.time_us }, "{release}");
        }
        assert_eq!(older.segments.len(), of_2_4.segments.len(), "{release}");
        for (ours, theirs) in older.segments.iter().zip(&of_2_4.segments) {
            let blocks = |segment: &lab_traces::snapshot::Segment| {
                segment.blocks.iter().map(|block| (block.address, block.bytes, block.state)).collect::<Vec<_>>()
            };
            assert_eq!(blocks(ours), blocks(theirs), "{release}");
        }
    }
}
