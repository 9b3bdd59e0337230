//! Recordings of whole programs: replayed to the byte, tuned, looked at.

use std::path::Path;

use lab::replay::{Machine, Operation, Policy, Settings, Trace, run_once};
use lab::snapshot::{Agreement, Snapshot, agreement};
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
