//! The card as cuDNN wants it described (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`).
//!
//! The fields' names are those that cuDNN 9.19 misses one after the other, in its log of errors, in a description
//! without them. Its answers follow from the compute capability: on 9.0 the two clocks changed 24 of 972 workspaces,
//! every other figure none, so that the figures of one usual card stand for all of its capability.

use crate::card::{self, Architecture, MAX_THREADS, SHARED_PER_BLOCK};
use crate::settings::settings;
use crate::wheel;

/// Describes the card of the settings.
pub(super) fn of_the_card() -> String {
    describe(settings().capability, card::multiprocessors())
}

/// Describes a usual card of a compute capability.
pub(super) fn usual(capability: (i32, i32)) -> String {
    describe(capability, Architecture::by_capability(capability).usual_multiprocessors)
}

fn describe(capability: (i32, i32), multiprocessors: i32) -> String {
    let architecture = Architecture::by_capability(capability);
    let numbers: [(&str, i128); 20] = [
        ("regsPerBlock", 65536),
        ("multiProcessorCount", multiprocessors.into()),
        ("warpSize", 32),
        ("maxSharedMemoryPerBlock", SHARED_PER_BLOCK.into()),
        ("maxSharedMemoryPerBlockOptin", architecture.shared_opt_in.into()),
        ("reservedSharedMemoryPerBlock", architecture.shared_reserved.into()),
        ("maxRegistersPerSM", 65536),
        ("maxCtasPerSM", architecture.blocks_per_multiprocessor.into()),
        ("maxThreadsPerBlock", MAX_THREADS.into()),
        ("maxThreadsPerSM", architecture.threads_per_multiprocessor.into()),
        ("pciDeviceId", 0),
        ("isTccDriver", 0),
        ("supportCoopLaunch", 1),
        ("totalGlobalMem", settings().memory.into()),
        ("smClockRateKHz", architecture.clock_khz.into()),
        ("memClockRateKHz", architecture.memory_clock_khz.into()),
        ("l2CacheSize", architecture.l2_bytes.into()),
        ("cudaDeviceId", 0),
        ("deviceVer", (capability.0 * 100 + capability.1 * 10).into()),
        ("driverVer", wheel::cuda().into()),
    ];
    let numbers: Vec<String> = numbers.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!(
        "{{\"deviceName\":\"{}\",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],{}}}",
        plain(&settings().name),
        numbers.join(",")
    )
}

/// Replaces the characters that JSON would have to escape.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || matches!(c, '"' | '\\') { '?' } else { c }).collect()
}
