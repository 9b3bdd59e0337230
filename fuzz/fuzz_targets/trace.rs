//! Recordings that `vramlab replay` reads.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = lab::replay::Trace::read("f", bytes);
});
