//! Training on the processor takes what the allocator reserves, and hardly anything beside it: no copy of a tensor lives on the
//! host's heap.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use backend_cpu::Cpu;
use lab::bench::training;
use memcore::Device;
use memcore::backend::Backend;

mod counting;
use counting::{LIVE, PEAK};

/// What a network of any size may take beside its segments.
const FIXED_BYTES: u64 = 8 << 20;

#[test]
fn the_heap_holds_no_tensors() {
    // Each thread has a fixed scratch: as many as the machine has cores would say something of the machine.
    let cpu = Arc::new(Cpu::with_threads(2).unwrap());
    let scratch = cpu.scratch_bytes();
    let device = Device::builder(cpu).build();
    let mut mlp = training::named("mlp").unwrap().prepare(&device).unwrap();
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    for _ in 0..3 {
        assert!(mlp.step().unwrap().unwrap().is_finite());
    }
    // Segments are pages of the system's, which this does not count.
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
