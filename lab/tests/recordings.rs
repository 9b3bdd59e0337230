//! Recordings of whole programs: replayed to the byte, tuned, looked at.

use std::path::Path;

use lab::replay::{Machine, Operation, Policy, Settings, Trace, run_once};
use lab::snapshot::{Agreement, Release, Releases, Snapshot, Tuned, agreement, tune};
use memcore::memory::AllocatorConfig;

fn recorded(name: &str) -> Snapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/recordings/{name}.pickle.gz"));
    Snapshot::open(&path).unwrap()
}

fn checked(name: &str) -> Agreement {
    let snapshot = recorded(name);
    let program = snapshot.program(name, 0).unwrap();
    let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
    let machine = Machine { capacity_bytes: program.trace.settings.capacity_bytes, memory_fraction: None };
    agreement(&snapshot, 0, &program, &policy, &machine).unwrap()
}

#[test]
fn every_recording_is_repeated_to_the_byte() {
    for name in ["cudagraph", "mlp_oom_expandable", "nanogpt", "streams_pending"] {
        let found = checked(name);
        assert!(found.is_exact() && found.segments > 0 && found.allocations > 0, "{name}: {found:?}");
    }
}

#[test]
fn what_a_graph_allocates_is_of_its_private_pool() {
    let snapshot = recorded("cudagraph");
    let program = snapshot.program("cudagraph", 0).unwrap();
    let pools = program.trace.operations().iter().filter_map(|operation| match operation {
        Operation::Allocate { pool, .. } => Some(*pool),
        _ => None,
    });
    let pools: Vec<u16> = pools.collect();
    // The capture is the last part, after two small tensors on its stream that are nobody's.
    let first = pools.iter().position(|pool| *pool != 0).unwrap();
    assert!(pools[first..].iter().all(|pool| *pool == 1), "{pools:?}");
    assert_eq!((first, pools.len()), (49, 71));
}

fn tuned(snapshot: &Snapshot) -> Tuned {
    let program = snapshot.program("tuned", 0).unwrap();
    let config = snapshot.allocator_config().unwrap();
    tune(&program.trace, &config, &Machine::default(), snapshot.releases, &mut || false).unwrap()
}

#[test]
fn tuning_goes_on_to_the_next_when_the_best_does_not_hold() {
    let snapshot = recorded("nanogpt");
    let Tuned { recorded, best, overfitted, tried, .. } = tuned(&snapshot);
    // Something was better on the part that the search saw, and worse on the rest.
    let overfitted = overfitted.unwrap();
    assert!(overfitted.searched < best.searched && overfitted.held_out > recorded.held_out, "{overfitted:?}");
    // PyTorch itself takes so much with these settings, and took so much with the recorded ones.
    assert_eq!(best.alloc_conf, "expandable_segments:True", "{:?}", &tried[..6]);
    assert_eq!(best.whole.unwrap().peak_reserved, 11_563_696_128);
    assert_eq!(recorded.whole.unwrap().peak_reserved, 12_601_786_368);
}

#[test]
fn tuning_proposes_only_what_the_release_reads() {
    // Small tensors that come in dozens, between which nothing is freed: larger segments save calls of the driver.
    let mut operations = Vec::new();
    for step in 0..2000u64 {
        operations.push(Operation::Allocate { bytes: (1 << 20) + 1 + step, stream: 0, pool: 0, served: true });
    }
    let trace = Trace::new("small", Settings::default(), operations).unwrap();
    let tuned = |oldest, newest| {
        let releases = Releases { oldest, newest };
        tune(&trace, &AllocatorConfig::default(), &Machine::default(), releases, &mut || false).unwrap()
    };
    let sets = |found: &lab::snapshot::Candidate, option: &str| found.alloc_conf.contains(option);
    let all = tuned(Release(2, 11), Release(2, 11));
    assert!(sets(&all.best, "large_segment_size_mb") && all.newer.is_none(), "{all:?}");
    // Which release it was is not known: what all of them read first, the rest apart.
    let unsure = tuned(Release(2, 9), Release(2, 11));
    assert!(!sets(&unsure.best, "large_segment_size_mb"), "{:?}", unsure.best);
    assert!(sets(unsure.newer.as_ref().unwrap(), "large_segment_size_mb"), "{:?}", unsure.newer);
    let older = tuned(Release(2, 1), Release(2, 8));
    assert!(older.tried.iter().all(|tried| !sets(tried, "large_segment_size_mb")) && older.newer.is_none());
    let oldest = tuned(Release(1, 12), Release(2, 0));
    assert!(oldest.tried.iter().all(|tried| !sets(tried, "expandable_segments")));
    assert!(oldest.tried.iter().any(|tried| sets(tried, "roundup_power2_divisions")));
}

#[test]
fn releases_are_told_by_their_keys() {
    assert_eq!(recorded("nanogpt").releases, Releases { oldest: Release(2, 9), newest: Release(2, 11) });
    let read = |settings: &str| {
        let text = format!("{{\"segments\": [], \"allocator_settings\": {{{settings}}}}}");
        Snapshot::read("s.json", text.as_bytes()).unwrap().releases
    };
    assert_eq!(read("\"expandable_segments\": false").newest, Release(2, 8));
    assert_eq!(read("\"max_split_size\": -1").newest, Release(2, 0));
    assert_eq!(read("\"PYTORCH_CUDA_ALLOC_CONF\": \"large_segment_size_mb:32\"").oldest, Release(2, 10));
    assert_eq!(Snapshot::read("s.json", &b"{\"segments\": []}"[..]).unwrap().releases.newest, Release(2, 0));
}

#[test]
fn a_request_that_the_program_did_not_get_is_in_no_peak() {
    let take = |bytes: u64, served: bool| Operation::Allocate { bytes, stream: 0, pool: 0, served };
    let operations = vec![
        take(100 << 20, true),
        Operation::Free { allocation: 0 },
        Operation::EmptyCache,
        take(40 << 20, true),
        take(80 << 20, false),
        take(20 << 20, true),
    ];
    let trace = Trace::new("lost", Settings::default(), operations).unwrap();
    for name in ["direct", "planned"] {
        let figures =
            run_once(&trace, &Policy::by_name(name, &AllocatorConfig::default()).unwrap(), &Machine::default());
        let figures = figures.unwrap();
        let drawn = figures.samples.iter().map(|sample| sample.reserved_bytes).max();
        assert_eq!((figures.peak_reserved, drawn), (100 << 20, Some(100 << 20)), "{name}");
        assert_eq!((figures.peak_allocated, figures.departures), (100 << 20, 0), "{name}");
    }
}
