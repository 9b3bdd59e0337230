//! Contents of the operands of a case: a few kinds of values, the same in every run.

use memcore::DType;

use crate::reference::{Number, load, store};

/// Contents of an operand before the call.
#[derive(Clone, Debug)]
pub enum Data {
    /// Uniform values in `low..high`, rounded to the operand's type (truncated for integers).
    Range(f64, f64),
    /// Integers in `low..high`, for any type.
    Ints(i64, i64),
    /// 0 or 1, about half of each.
    Mask,
    /// One value everywhere.
    Constant(f64),
    /// These values in row-major order, repeated when they run out.
    Values(Vec<f64>),
    /// Contents that must not be read: NaN, or the largest word of an integer type.
    Poison,
}

impl Data {
    /// Calls `put` with the bytes of each of `count` elements; never for [`Data::Poison`]. `seed` determines the random
    /// ones.
    pub(crate) fn each_element(&self, dtype: DType, count: usize, seed: u64, mut put: impl FnMut(usize, &[u8])) {
        if matches!(self, Data::Poison) {
            return;
        }
        let mut words = Words(seed);
        let mut bytes = [0; 8];
        let slot = &mut bytes[..dtype.size() as usize];
        for i in 0..count {
            store(dtype, self.element(i, dtype, &mut words), slot);
            put(i, slot);
        }
    }

    fn element(&self, i: usize, dtype: DType, words: &mut Words) -> Number {
        match self {
            Data::Range(low, high) => Number::F(in_range(*low, *high, dtype, words)),
            Data::Ints(low, high) => Number::I(low + (words.next() % (high - low) as u64) as i64),
            Data::Mask => Number::I((words.next() >> 63) as i64),
            Data::Constant(value) => Number::F(*value),
            Data::Values(values) => Number::F(values[i % values.len()]),
            Data::Poison => Number::F(f64::NAN),
        }
    }
}

/// A value in `low..high` that is still in the range after rounding to its type (a value that rounds up to `high` is
/// drawn again).
fn in_range(low: f64, high: f64, dtype: DType, words: &mut Words) -> f64 {
    let mut bytes = [0; 8];
    let slot = &mut bytes[..dtype.size() as usize];
    for _ in 0..16 {
        let value = low + (high - low) * ((words.next() >> 11) as f64 * 2f64.powi(-53));
        store(dtype, Number::F(value), slot);
        let stored = load(dtype, slot).to_f64();
        if (low..high).contains(&stored) {
            return stored;
        }
    }
    low
}

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// A seed computed from a name (FNV-1a), so that a case's values change only with its name.
pub(crate) fn seed(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(data: &Data, dtype: DType) -> Vec<f64> {
        let mut out = Vec::new();
        data.each_element(dtype, 500, 7, |_, bytes| out.push(load(dtype, bytes).to_f64()));
        out
    }

    #[test]
    fn ranges_are_kept_in_every_type() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let got = values(&Data::Range(0.5, 1.0), dtype);
            assert!(got.iter().all(|x| (0.5..1.0).contains(x)));
            assert!(got.iter().any(|x| *x < 0.6) && got.iter().any(|x| *x > 0.9));
        }
        assert!(values(&Data::Ints(-3, 4), DType::I8).iter().all(|x| (-3.0..4.0).contains(x)));
        let mask = values(&Data::Mask, DType::Bool);
        assert!((150..350).contains(&mask.iter().filter(|&&x| x == 1.0).count()));
    }

    #[test]
    fn the_same_seed_gives_the_same_values() {
        assert_eq!(values(&Data::Range(0.0, 1.0), DType::F32), values(&Data::Range(0.0, 1.0), DType::F32));
        assert_ne!(seed("a"), seed("b"));
    }
}
