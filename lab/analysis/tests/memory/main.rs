//! Training on the CPU takes the memory that the allocator reserves, and hardly any more: no copy of a tensor is on the
//! host's heap.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use std::ops::ControlFlow;

use backend_cpu::Cpu;
use lab_analysis::bench::training;
use lab_analysis::forensics::Watch;
use lab_models::{self as models, ModelOptions};
use lab_training::record::RowsKept;
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::Device;
use memcore::backend::{Backend, DeviceProfile, Meta};

#[path = "../../../traces/tests/memory/counting.rs"]
mod counting;
use counting::{LIVE, PEAK};

/// Limit of memory outside of segments, for networks of any size: scratch memory for each of two threads, and 4 MiB of packed weights.
const FIXED_BYTES: u64 = 12 << 20;

#[test]
fn the_heap_holds_no_tensors() {
    // Each thread has scratch memory of a fixed size: with a thread per core the figure would depend on the machine.
    let cpu = Arc::new(Cpu::with_threads(2).unwrap());
    let scratch = cpu.scratch_bytes();
    let device = Device::builder(cpu).build();
    let mut mlp = training::named("mlp").unwrap().prepare(&device).unwrap();
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    for _ in 0..3 {
        assert!(mlp.step().unwrap().unwrap().is_finite());
    }
    // Segments are the system's pages, which this allocator does not count.
    let heap = (PEAK.load(Relaxed) - before) as u64;
    let reserved = device.stats().reserved_bytes.all.peak;
    assert!(reserved > 64 << 20, "the network is to be large: {reserved}");
    println!("heap {heap}, reserved {reserved}, scratch {scratch}");
    let allowed = reserved / 20 + FIXED_BYTES;
    assert!(
        heap + scratch <= allowed,
        "heap {heap} and scratch {scratch} beside {reserved} reserved: at most {allowed}"
    );
}

/// Bytes of the heap after the 10,000th and the 40,000th step of a run with the command line's recorders.
fn held_by_steps(rows: RowsKept) -> (usize, usize) {
    let device = Device::builder(Arc::new(Meta::new(DeviceProfile::default()))).build();
    let model = models::architecture("linear", &ModelOptions::default()).unwrap();
    let mut settings = RunSettings::new(2, 40_000, OptimizerSettings::new(OptimizerKind::Sgd, 0.1));
    settings.rows = rows;
    let mut watch = Watch::new(&device);
    let mut held = (0, 0);
    let progress = &mut |progress: lab_training::Progress| {
        watch.step();
        match progress.done {
            10_000 => held.0 = LIVE.load(Relaxed),
            40_000 => held.1 = LIVE.load(Relaxed),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let result = train(&*model, &device, &settings, Source::Synthetic { seed: 0 }, progress).unwrap();
    assert_eq!(result.rows.len() + result.rows_left_out, 2 + 6 * 40_000);
    held
}

/// The host's memory must not grow with the number of steps.
#[test]
fn the_heap_is_as_large_after_many_steps() {
    let (early, late) = held_by_steps(RowsKept::Ends);
    assert!(late <= early + (64 << 10), "{early} bytes after 10,000 steps, {late} after 40,000");
    let (early, late) = held_by_steps(RowsKept::Every);
    assert!(late > early + (10 << 20), "this test sees what grows: {early}, {late}");
}
