//! Recordings that `vramlab replay` reads: what is read is replayed by every policy, which is where arithmetic on hostile sizes is.
#![no_main]

use lab::replay::{Machine, POLICY_NAMES, Policy, Trace, run_once};
use libfuzzer_sys::fuzz_target;
use memcore::memory::AllocatorConfig;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = Trace::read("f", bytes) else { return };
    let _ = trace.lower_bound();
    // Packing takes longer than a fuzzer waits.
    for name in POLICY_NAMES.into_iter().filter(|name| *name != "planned") {
        let policy = Policy::by_name(name, &AllocatorConfig::default()).expect("the names are known");
        for capacity_bytes in [None, Some(64 << 20)] {
            let _ = run_once(&trace, &policy, &Machine { capacity_bytes, memory_fraction: None });
        }
    }
});
