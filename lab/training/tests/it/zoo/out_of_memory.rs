//! Memory that runs out, or a kernel that fails, at any moment of a training step: an error, nothing lost, and the device goes on.

use std::sync::Arc;

use memcore::backend::{Backend, Faulty, FaultyCall, Limited, Meta};
use memcore::memory::{Allocator, Caching, Category, Direct, Verdict};
use memcore::{Device, Profile};

use super::cases::{Case, meta, nothing_is_left, plain, train, trainer};

/// A device above a backend that fails.
fn device(faulty: &Arc<Faulty<Meta>>, direct: bool) -> Device {
    let allocator: Box<dyn Allocator> =
        if direct { Box::new(Direct::new(faulty.clone())) } else { Box::new(Caching::with_defaults(faulty.clone())) };
    Device::builder(faulty.clone()).profile(Profile::torch_2_11(90)).allocator(allocator).build()
}

/// Selects the calls of a run that will fail: all for a small network, evenly spaced ones for a deep network.
const MAX_FAILURES: usize = 150;

/// Number of calls of a kind in a whole run.
fn calls(case: &Case, kind: FaultyCall, direct: bool) -> usize {
    let faulty = Arc::new(Faulty::new(meta(), kind, u64::MAX, 1));
    let mut trainer = trainer(case, &device(&faulty, direct)).unwrap();
    train(case, &mut trainer).unwrap();
    faulty.calls() as usize
}

/// Builds and trains on a device whose n-th call fails, for every n of a run (or at even distances). Returns how many of the runs failed.
fn every_failure(case: &Case, kind: FaultyCall, direct: bool, is_expected: impl Fn(&lab_base::Error) -> bool) -> usize {
    let mut failed = 0;
    let distance = calls(case, kind, direct).div_ceil(MAX_FAILURES).max(1);
    for n in (0..).step_by(distance) {
        let times = if kind == FaultyCall::AllocSegment && !direct { 2 } else { 1 };
        let faulty = Arc::new(Faulty::new(meta(), kind, n, times));
        let device = device(&faulty, direct);
        let name = format!("{}, call {n} fails", case.name);
        let outcome = trainer(case, &device).and_then(|mut trainer| {
            let outcome = train(case, &mut trainer);
            if let Err(error) = &outcome {
                assert!(is_expected(error), "{name}: {error}");
                // After the failure a second run succeeds with the same model.
                train(case, &mut trainer).unwrap_or_else(|error| panic!("{name}, and training again: {error}"));
            }
            outcome
        });
        if let Err(error) = &outcome {
            failed += 1;
            assert!(is_expected(error), "{name}: {error}");
        }
        nothing_is_left(&name, &device);
        if outcome.is_ok() {
            // The run ended before the failing call, or the allocator's second attempt succeeded.
            if faulty.calls() <= n {
                break;
            }
            assert!(times == 2, "{name}: and nobody said so");
            continue;
        }
        let mut again = trainer(case, &device).unwrap();
        train(case, &mut again).unwrap_or_else(|error| panic!("{name}, and a new model: {error}"));
        again.finish(None);
        nothing_is_left(&name, &device);
    }
    failed
}

fn is_out_of_memory(error: &lab_base::Error) -> bool {
    matches!(error, lab_base::Error::Core(memcore::Error::OutOfMemory(_)))
}

#[test]
fn any_segment_that_is_refused_is_an_out_of_memory_and_no_more() {
    for case in plain() {
        let failed = every_failure(&case, FaultyCall::AllocSegment, false, is_out_of_memory);
        assert!(failed >= 2, "{}: {failed} failures", case.name);
    }
}

#[test]
fn any_allocation_that_is_refused_is_an_out_of_memory_and_no_more() {
    for mut case in plain() {
        case.settings.steps = 1;
        let failed = every_failure(&case, FaultyCall::AllocSegment, true, is_out_of_memory);
        assert!(failed >= 10, "{}: {failed} failures", case.name);
    }
}

#[test]
fn any_kernel_that_fails_is_the_backends_error_and_no_more() {
    for mut case in plain() {
        case.settings.steps = 1;
        let is_backends =
            |error: &lab_base::Error| matches!(error, lab_base::Error::Core(memcore::Error::Backend { .. }));
        let failed = every_failure(&case, FaultyCall::Launch, false, is_backends);
        assert!(failed >= 5, "{}: {failed} failures", case.name);
    }
}

#[test]
fn a_device_that_is_too_small_says_who_holds_the_memory() {
    for mut case in plain() {
        let used = {
            let device = Device::builder(Arc::new(meta())).build();
            case.settings.batch = 1024;
            let mut trainer = trainer(&case, &device).unwrap();
            train(&case, &mut trainer).unwrap();
            device.stats().reserved_bytes.all.peak
        };
        if used <= 4 << 20 {
            continue; // one segment holds the whole run
        }
        let limited: Arc<dyn Backend> = Arc::new(Limited::new(meta(), used / 2));
        let device = Device::builder(limited).build();
        let outcome = trainer(&case, &device).and_then(|mut trainer| train(&case, &mut trainer));
        let Err(lab_base::Error::Core(memcore::Error::OutOfMemory(report))) = outcome else {
            panic!("{}: {outcome:?} with half of what is needed", case.name);
        };
        assert_eq!(report.total_bytes, Some(used / 2), "{}", case.name);
        assert_eq!(report.by_category.iter().sum::<u64>(), report.rings.allocated_bytes, "{}", case.name);
        assert!(report.by_category[Category::Parameter as usize] > 0, "{}: {report:?}", case.name);
        assert!(report.rings.nested() && !report.top_scopes.is_empty(), "{}: {report:?}", case.name);
        if report.verdict == Verdict::Fragmented {
            // What is free in pieces, of either pool, would do as one.
            let spare = report.free_bytes.unwrap() + report.rings.reserved_bytes - report.rings.allocated_bytes;
            assert!(spare >= report.block_bytes, "{}: {report:?}", case.name);
        } else {
            // Of the segment, not of the request: 1.5 MiB takes a segment of 20, and 16 MiB take one of 16.
            assert!(report.largest_fit_bytes < report.segment_bytes, "{}: {report:?}", case.name);
            assert!(report.largest_fit_bytes <= report.free_bytes.unwrap(), "{}: {report:?}", case.name);
        }
        nothing_is_left(&case.name, &device);
    }
}
