//! Deterministic values: the rule that all peers share.
//!
//! `z = ((stream << 32) + i + 1)·0x9E3779B97F4A7C15`, then SplitMix64's finaliser; a float in `[−bound, bound)` takes the upper 24 bits, an
//! integer below n the upper 31 modulo n.

/// Stream of the inputs.
pub(crate) const INPUTS: u64 = 1000;
/// Stream of the targets.
pub(crate) const TARGETS: u64 = 1001;

fn mix(stream: u64, i: u64) -> u64 {
    let mut z = ((stream << 32).wrapping_add(i).wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// `n` floats in `[−bound, bound)`.
pub(crate) fn uniform(stream: u64, n: usize, bound: f32) -> Vec<f32> {
    let value = |i| ((mix(stream, i) >> 40) as f32 * (2.0 / 16_777_216.0) - 1.0) * bound;
    (0..n as u64).map(value).collect()
}

/// `n` integers below `classes`.
pub(crate) fn labels(stream: u64, n: usize, classes: u64) -> Vec<i64> {
    (0..n as u64).map(|i| ((mix(stream, i) >> 33) % classes) as i64).collect()
}
