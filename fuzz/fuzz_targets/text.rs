//! Pasted out-of-memory messages, and settings of the allocator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memcore::memory::AllocatorConfig;

fuzz_target!(|text: &str| {
    let _ = lab::explain::explain(text);
    let _ = AllocatorConfig::parse(text);
});
