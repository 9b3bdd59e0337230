//! Deterministic values. The programs of other frameworks follow the same rule, so that losses must agree.
//!
//! `z = ((stream << 32) + i + 1)·0x9E3779B97F4A7C15`, then SplitMix64's finaliser; a float in `[−bound, bound)` takes the upper 24 bits, an integer
//! below n the upper 31 modulo n.

/// Stream of the inputs.
pub const INPUTS: u64 = 1000;
/// Stream of the targets.
pub const TARGETS: u64 = 1001;

fn mix(stream: u64, i: u64) -> u64 {
    let mut z = ((stream << 32).wrapping_add(i).wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns `n` floats in `[−bound, bound)`.
pub fn uniform(stream: u64, n: usize, bound: f32) -> Vec<f32> {
    let value = |i| ((mix(stream, i) >> 40) as f32 * (2.0 / 16_777_216.0) - 1.0) * bound;
    (0..n as u64).map(value).collect()
}

/// Returns `n` integers below `classes`.
pub fn labels(stream: u64, n: usize, classes: u64) -> Vec<i64> {
    (0..n as u64).map(|i| ((mix(stream, i) >> 33) % classes) as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stream 0 is SplitMix64 from 0, whose values are published; the labels are those of a program in Python.
    #[test]
    fn the_rule_is_the_others() {
        assert_eq!([mix(0, 0), mix(0, 1)], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        assert_eq!(labels(TARGETS, 6, 10), [1, 6, 1, 5, 9, 6]);
        assert!(uniform(3, 1000, 0.5).iter().all(|x| (-0.5..0.5).contains(x)));
        assert!(labels(TARGETS, 1000, 10).iter().all(|y| (0..10).contains(y)));
    }
}
