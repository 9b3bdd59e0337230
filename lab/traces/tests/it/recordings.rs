//! Recordings of complete programs: replayed to the byte, tuned, shown.

use std::path::Path;

use lab_traces::replay::{Machine, Operation, Policy, Settings, Trace, run_once};
use lab_traces::snapshot::{Action, Agreement, Release, Releases, Snapshot, Tuned, agreement, tune};
use lab_traces::stacks::{Guesses, Phase};
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

/// Programs with segments that grow, recorded from the middle on: with several streams, and with pages that are given back.
#[test]
fn segments_that_grow_are_repeated_from_the_middle_of_a_run_on() {
    for seed in 0..6 {
        let name = format!("middle_{seed}");
        let found = checked(&name);
        assert!(found.is_exact() && found.resumed && found.before > 0 && found.allocations > 10, "{name}: {found:?}");
    }
}

/// Traces that have lost their beginning are repeated, and settings whose pages cannot have led to the recorded state are not tried.
#[test]
fn a_trace_without_its_beginning_is_repeated_and_tuned() {
    for (name, tried) in [("cut", true), ("cut_expandable", false)] {
        let found = checked(name);
        assert!(found.is_exact() && found.resumed && found.before == 27, "{name}: {found:?}");
        let snapshot = recorded(name);
        let (recorded, program) = (snapshot.allocator_config().unwrap(), snapshot.program(name, 0).unwrap());
        let releases = Releases { oldest: Release(2, 15), newest: Release(2, 15) };
        let tuned = tune(&program.trace, &recorded, &Machine::default(), releases, &mut || false).unwrap();
        let segments = |found: &str| found.contains("large_segment_size_mb");
        assert_eq!(tuned.tried.iter().any(|found| segments(&found.alloc_conf)), tried, "{name}");
        assert!(tuned.best.whole >= tuned.recorded.whole.filter(|_| !tried), "{name}: {tuned:?}");
    }
}

/// A block that lived before the trace, and was freed in it, has no stack: the one at its address at the end is of a later block.
#[test]
fn a_later_block_does_not_give_its_stack_to_an_earlier_one() {
    let snapshot = recorded("cut");
    let made: Vec<u64> = snapshot.trace(0).iter().filter(|e| e.action == Action::Alloc).map(|e| e.address).collect();
    let before = snapshot.live_after(0, None);
    let again: Vec<_> = before.iter().filter(|(address, ..)| made.contains(address)).collect();
    assert!(!again.is_empty());
    assert!(again.iter().all(|(_, _, stack, _)| !snapshot.has_stack(*stack)), "{again:?}");
    assert!(before.iter().any(|(_, _, stack, _)| snapshot.has_stack(*stack)), "{before:?}");
}

/// The part of a step in which memory ran out is that of the request's own stack.
#[test]
fn a_refused_request_has_the_part_of_its_own_stack() {
    for name in ["refused_and_went_on", "limited"] {
        let snapshot = recorded(name);
        let guesses = Guesses::from_snapshot(&snapshot, 0);
        let entry = snapshot.trace(0).iter().rposition(|event| event.action == Action::Oom).unwrap();
        assert_eq!(guesses.phase(entry), Some(Phase::Input), "{name}");
    }
}

#[test]
fn states_alone_are_no_requests() {
    let snapshot = recorded("states_alone");
    assert!(!snapshot.records_requests(0) && !snapshot.trace(0).is_empty());
    let error = snapshot.program("states", 0).unwrap_err().to_string();
    assert!(error.contains("no requests were recorded on device 0"), "{error}");
}

/// The pool of each allocation of a program, in order.
fn pools(snapshot: &Snapshot) -> Vec<u16> {
    let program = snapshot.program("pools", 0).unwrap();
    let pools = program.trace.operations().iter().filter_map(|operation| match operation {
        Operation::Allocate { pool, .. } => Some(*pool),
        _ => None,
    });
    pools.collect()
}

#[test]
fn what_a_graph_allocates_is_of_its_private_pool() {
    let pools = pools(&recorded("cudagraph"));
    // The capture is the last part, after two small tensors on its stream that belong to no module.
    let first = pools.iter().position(|pool| *pool != 0).unwrap();
    assert!(pools[first..].iter().all(|pool| *pool == 1), "{pools:?}");
    assert_eq!((first, pools.len()), (49, 71));
}

#[test]
fn an_address_may_be_of_another_pool_later() {
    let entry = |action: &str, size: u64, more: &str| {
        format!("{{\"action\": \"{action}\", \"addr\": 2097152, \"size\": {size}, \"stream\": 0{more}}}")
    };
    let life = |more: &str| {
        let frees = [entry("free_requested", 1000, more), entry("free_completed", 1000, more)];
        [vec![entry("segment_alloc", 2 << 20, more), entry("alloc", 1000, more)], frees.to_vec()].concat()
    };
    let read = |first: &str, second: &str| {
        let gone = vec![entry("segment_free", 2 << 20, first)];
        let trace = [life(first), gone, life(second)].concat().join(", ");
        let text = format!(
            "{{\"segments\": [{{\"address\": 2097152, \"total_size\": 2097152, \"segment_type\": \"small\", \
             \"segment_pool_id\": [1, 0], \"blocks\": [{{\"size\": 2097152, \"state\": \"inactive\"}}]}}], \
             \"device_traces\": [[{trace}]]}}"
        );
        pools(&Snapshot::read("pools.json", text.as_bytes()).unwrap())
    };
    assert_eq!(read("", ""), [0, 1]);
    // Later releases record the pool themselves, also for freed blocks.
    assert_eq!(read(", \"pool_id\": [7, 0]", ", \"pool_id\": [1, 0]").len(), 2);
    assert_ne!(read(", \"pool_id\": [7, 0]", ", \"pool_id\": [1, 0]")[0], 0);
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
    // A setting was better on the part that the search used, and worse on the rest.
    let overfitted = overfitted.unwrap();
    assert!(overfitted.searched < best.searched && overfitted.held_out > recorded.held_out, "{overfitted:?}");
    // PyTorch's own figures with these settings and with the recorded ones.
    assert_eq!(best.alloc_conf, "expandable_segments:True", "{:?}", &tried[..6]);
    assert_eq!(best.whole.unwrap().peak_reserved, 11_563_696_128);
    assert_eq!(recorded.whole.unwrap().peak_reserved, 12_601_786_368);
}

#[test]
fn tuning_proposes_nothing_that_a_run_would_not_notice() {
    let mut operations = Vec::new();
    let mut made = 0;
    let mut together = |sizes: &[u64], empties: bool| {
        for &bytes in sizes {
            operations.push(Operation::Allocate { bytes: bytes << 20, stream: 0, pool: 0, served: true });
            if empties {
                operations.push(Operation::Free { allocation: made });
            }
            made += 1;
        }
        let held = if empties { 0..0 } else { made - sizes.len() as u32..made };
        operations.extend(held.map(|allocation| Operation::Free { allocation }));
        operations.push(Operation::EmptyCache);
    };
    // Rounded up, the second of two blocks takes the place of the first: two calls of the driver less, and as much memory.
    together(&[40; 20], false);
    together(&[33, 35], true);
    together(&[40; 15], false);
    let trace = Trace::new("steady", Settings::default(), operations).unwrap();
    let found =
        tune(&trace, &AllocatorConfig::default(), &Machine::default(), Releases::default(), &mut || false).unwrap();
    let recorded = found.recorded.searched;
    let saves = |cost: lab_traces::snapshot::Cost| {
        cost.peak_reserved == recorded.peak_reserved && cost.driver_calls < recorded.driver_calls
    };
    assert!(found.tried.iter().any(|tried| saves(tried.searched)), "{:?}", found.tried);
    assert_eq!(found.best.alloc_conf, found.recorded.alloc_conf, "{:?}", found.best);
    assert!(found.newer.is_none() && found.overfitted.is_none(), "{:?} {:?}", found.newer, found.overfitted);
}

#[test]
fn tuning_proposes_only_what_the_release_reads() {
    // Dozens of small tensors, and no frees between them: larger segments save driver calls.
    let mut operations = Vec::new();
    for step in 0..2000u64 {
        operations.push(Operation::Allocate { bytes: (1 << 20) + 1 + step, stream: 0, pool: 0, served: true });
    }
    let trace = Trace::new("small", Settings::default(), operations).unwrap();
    let tuned = |oldest, newest| {
        let releases = Releases { oldest, newest };
        tune(&trace, &AllocatorConfig::default(), &Machine::default(), releases, &mut || false).unwrap()
    };
    let sets = |found: &lab_traces::snapshot::Candidate, option: &str| found.alloc_conf.contains(option);
    let all = tuned(Release(2, 11), Release(2, 11));
    assert!(sets(&all.best, "large_segment_size_mb") && all.newer.is_none(), "{all:?}");
    // The release is unknown: options of all releases first, the others separately.
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
fn one_rise_is_no_leak() {
    // 121.74, 123.3 and 121.74 MiB at the ends of three steps: some tensors are held over the end of one.
    let leftovers = recorded("mlp_oom_expandable").leftovers(0).course;
    assert_eq!(leftovers.steps.len(), 3);
    assert!(leftovers.steps[2] < leftovers.steps[1] && leftovers.growing.is_empty(), "{leftovers:?}");
}

/// A snapshot of steps that each end with so many tensors of two sites.
fn steps(counts: &[(u64, u64)]) -> Snapshot {
    let (mut entries, mut annotations, mut time) = (Vec::new(), Vec::new(), 0);
    let mut live = [Vec::new(), Vec::new()];
    let mut next = 1u64 << 20;
    for &(one, two) in counts {
        for (site, wanted) in [one, two].into_iter().enumerate() {
            let mut entry = |action: &str, address: u64| {
                time += 1;
                let size = 1000 * (site + 1);
                entries.push(format!(
                    "{{\"action\": \"{action}\", \"addr\": {address}, \"size\": {size}, \"stream\": 0, \"time_us\": {time}, \
                     \"frames\": [{{\"filename\": \"a.py\", \"line\": {site}, \"name\": \"f\"}}]}}"
                ));
            };
            while (live[site].len() as u64) < wanted {
                next += 4096;
                entry("alloc", next);
                live[site].push(next);
            }
            while live[site].len() as u64 > wanted {
                let address = live[site].pop().unwrap();
                entry("free_requested", address);
                entry("free_completed", address);
            }
        }
        time += 1;
        annotations.push(format!(
            "{{\"stage\": \"END\", \"name\": \"Optimizer.step#SGD.step\", \"device\": 0, \"time_us\": {time}}}"
        ));
    }
    let text = format!(
        "{{\"segments\": [], \"device_traces\": [[{}]], \"external_annotations\": [{}]}}",
        entries.join(", "),
        annotations.join(", ")
    );
    Snapshot::read("steps.json", text.as_bytes()).unwrap()
}

#[test]
fn a_leak_rises_at_every_step_and_in_sum() {
    let growing = |counts: &[(u64, u64)]| steps(counts).leftovers(0).course.growing;
    // The first step settles what stays; then there must be two rises.
    assert_eq!(growing(&[(1, 0), (2, 0), (3, 0)]), []);
    let leak = growing(&[(1, 0), (2, 0), (3, 0), (4, 0)]);
    assert_eq!((leak.len(), leak[0].largest, leak[0].more, leak[0].more_bytes, leak[0].steps), (1, 1000, 2, 2000, 2));
    assert_eq!(growing(&[(1, 0), (2, 0), (3, 0), (3, 0)]), []);
    // One site's memory replaces another's: their sum is smaller.
    assert_eq!(growing(&[(1, 9), (2, 9), (3, 7), (4, 5)]), []);
    assert_eq!(growing(&[(1, 9), (2, 9), (3, 9), (4, 8)]).len(), 1);
}

#[test]
fn what_waits_for_a_stream_is_not_held() {
    let snapshot = recorded("streams_pending");
    let totals = snapshot.totals(0);
    assert_eq!((totals.allocated, totals.active), (8_392_704, 12_591_104));
    let held: u64 = snapshot.held(0).iter().map(|held| held.bytes).sum();
    assert!(held <= totals.allocated && held <= snapshot.peak(0).bytes, "{held}");
    assert_eq!(held, snapshot.live_bytes(0).last().unwrap().1);
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
        assert_eq!((figures.peak_allocated, figures.unforeseen), (100 << 20, 0), "{name}");
    }
}
