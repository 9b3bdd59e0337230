//! Random generator of every shuffle and of all synthetic data.

/// SplitMix64: the same numbers for the same seed on every machine, for ever.
///
/// Source: G. L. Steele, D. Lea, C. H. Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014
/// (the 64-bit mixer is David Stafford's variant 13). It is written here, rather than taken from a crate, because
/// a crate may change its streams between versions and recorded results would change with them.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Returns the generator's stream for a seed. Every seed is good, 0 as well.
    pub fn new(seed: u64) -> Self {
        SplitMix64 { state: seed }
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in [0, 1): the upper 24 bits, so that every value is an exact f32.
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// Returns a uniform integer below `bound`, without bias; 0 if `bound` is 0.
    ///
    /// Source: D. Lemire, *Fast Random Integer Generation in an Interval*, ACM TOMACS 29(1), 2019.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }
}

/// Puts `items` into the random order of `seed` (Fisher–Yates, from the end).
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut rng = SplitMix64::new(seed);
    for last in (1..items.len()).rev() {
        let other = rng.below(last as u64 + 1) as usize;
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_stream() {
        // The first five outputs for seed 1234567 of the reference implementation (prng.di.unimi.it/splitmix64.c).
        let mut rng = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| rng.next_u64()), expected);
    }

    #[test]
    fn uniforms_stay_in_range_and_spread() {
        let mut rng = SplitMix64::new(0);
        let values: Vec<f32> = (0..10_000).map(|_| rng.next_f32()).collect();
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        // The mean's standard deviation is 1/√(12·10⁴) ≈ 0.0029; five of them.
        assert!((mean - 0.5).abs() < 0.0145, "mean {mean}");
    }

    #[test]
    fn integers_below_a_bound_reach_all_of_it() {
        let mut rng = SplitMix64::new(7);
        let mut counts = [0_u32; 6];
        for _ in 0..6_000 {
            counts[rng.below(6) as usize] += 1;
        }
        // Binomial(6000, 1/6): standard deviation ≈ 28.9; five of them.
        assert!(counts.iter().all(|n| n.abs_diff(1_000) < 145), "{counts:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn a_shuffle_is_a_permutation_that_the_seed_decides() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            shuffle(&mut items, seed);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(1);
        assert_ne!(sorted, (0..100).collect::<Vec<_>>());
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
