//! Elements of every type as plain numbers, converted back with one rounding.
//!
//! Each element of every case passes here several times: what is small is marked to be inlined into the other files.

use half::{bf16, f16};
use memcore::DType;

/// One element: a float as f64, an integer or bool as i64. Both hold every value of their types exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    F(f64),
    I(i64),
}

impl Number {
    #[inline]
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Number::F(x) => x,
            Number::I(x) => x as f64,
        }
    }

    /// Converts to an integer; floats truncate towards zero.
    #[inline]
    pub(crate) fn to_i64(self) -> i64 {
        match self {
            Number::F(x) => x as i64,
            Number::I(x) => x,
        }
    }

    #[inline]
    fn is_zero(self) -> bool {
        match self {
            Number::F(x) => x == 0.0,
            Number::I(x) => x == 0,
        }
    }
}

/// The element of type `dtype` whose bytes are `bytes` (`dtype.size()` of them, little endian).
#[inline]
pub(crate) fn load(dtype: DType, bytes: &[u8]) -> Number {
    match dtype {
        DType::F64 => Number::F(f64::from_le_bytes(first(bytes))),
        DType::F32 => Number::F(f32::from_le_bytes(first(bytes)).into()),
        DType::F16 => Number::F(f16::from_le_bytes(first(bytes)).into()),
        DType::BF16 => Number::F(bf16::from_le_bytes(first(bytes)).into()),
        DType::I64 => Number::I(i64::from_le_bytes(first(bytes))),
        DType::I32 => Number::I(i32::from_le_bytes(first(bytes)).into()),
        DType::I8 => Number::I(i8::from_le_bytes(first(bytes)).into()),
        DType::U8 | DType::Bool => Number::I(bytes[0].into()),
        DType::C64 => unreachable!("no backend has complex numbers"),
    }
}

/// Writes `number` as an element of type `dtype`: floats round to nearest even, floats to integers truncate, anything
/// to bool is `!= 0`.
#[inline]
pub(crate) fn store(dtype: DType, number: Number, bytes: &mut [u8]) {
    match dtype {
        DType::F64 => bytes.copy_from_slice(&number.to_f64().to_le_bytes()),
        DType::F32 => bytes.copy_from_slice(&(number.to_f64() as f32).to_le_bytes()),
        DType::F16 => bytes.copy_from_slice(&f16::from_f64(half(dtype, number.to_f64())).to_le_bytes()),
        DType::BF16 => bytes.copy_from_slice(&bf16::from_f64(half(dtype, number.to_f64())).to_le_bytes()),
        DType::I64 => bytes.copy_from_slice(&number.to_i64().to_le_bytes()),
        DType::I32 => bytes.copy_from_slice(&(number.to_i64() as i32).to_le_bytes()),
        DType::I8 | DType::U8 => bytes[0] = number.to_i64() as u8,
        DType::Bool => bytes[0] = u8::from(!number.is_zero()),
        DType::C64 => unreachable!("no backend has complex numbers"),
    }
}

#[inline]
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("as many bytes as an element has")
}

/// The distance between neighbouring values of `dtype`, a 16-bit float, around `x`: that of its binade, or of the
/// subnormal numbers.
#[inline]
pub(crate) fn spacing(dtype: DType, x: f64) -> f64 {
    let (mantissa, min_exponent) = if dtype == DType::F16 { (10, -14) } else { (7, -126) };
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(min_exponent);
    power_of_two(exponent - mantissa)
}

/// 2 to the power of `exponent`, which is that of a normal f64. `powi` is a call with a loop, and this is needed for every element.
#[inline]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Rounds `x` to nearest even at the spacing of a 16-bit float. The conversion that follows is exact or an overflow, so
/// it never rounds a second time.
#[inline]
fn half(dtype: DType, x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let unit = spacing(dtype, x);
    (x / unit).round_ties_even() * unit
}

/// Rounds `x` to `dtype`, a 16-bit float.
pub(crate) fn rounded(dtype: DType, x: f64) -> f64 {
    let x = half(dtype, x);
    if dtype == DType::F16 { f16::from_f64(x).into() } else { bf16::from_f64(x).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(dtype: DType, x: f64) -> f64 {
        let mut bytes = vec![0; dtype.size() as usize];
        store(dtype, Number::F(x), &mut bytes);
        load(dtype, &bytes).to_f64()
    }

    #[test]
    fn halves_round_once_to_nearest_even() {
        // A tie rounds to the even neighbour; anything above it rounds up, even a difference that f32 would lose.
        assert_eq!(through(DType::F16, 1.0 + 2f64.powi(-11)), 1.0);
        assert_eq!(through(DType::F16, 1.0 + 2f64.powi(-11) + 2f64.powi(-40)), 1.0 + 2f64.powi(-10));
        assert_eq!(through(DType::F16, 1.0 + 3.0 * 2f64.powi(-11)), 1.0 + 2.0 * 2f64.powi(-10));
        assert_eq!(through(DType::BF16, 1.0 + 2f64.powi(-8)), 1.0);
        assert_eq!(through(DType::BF16, 1.0 + 2f64.powi(-8) + 2f64.powi(-40)), 1.0 + 2f64.powi(-7));
    }

    #[test]
    fn powers_of_two_are_exact() {
        for exponent in -1022..=1023 {
            assert_eq!(power_of_two(exponent), 2f64.powi(exponent), "{exponent}");
        }
    }

    #[test]
    fn halves_have_their_limits() {
        assert_eq!(through(DType::F16, 65519.0), 65504.0);
        assert_eq!(through(DType::F16, 65520.0), f64::INFINITY);
        assert_eq!(through(DType::F16, 2f64.powi(-24)), 2f64.powi(-24));
        assert_eq!(through(DType::F16, 2f64.powi(-25)), 0.0);
        assert_eq!(through(DType::F16, -1.5 * 2f64.powi(-24)), -2.0 * 2f64.powi(-24));
        assert!(through(DType::BF16, f64::NAN).is_nan());
        assert_eq!(through(DType::BF16, f64::NEG_INFINITY), f64::NEG_INFINITY);
    }

    #[test]
    fn integers_truncate_and_bools_compare() {
        assert_eq!(through(DType::I8, -1.9), -1.0);
        assert_eq!(through(DType::U8, 200.7), 200.0);
        assert_eq!(through(DType::I32, -2147483648.0), -2147483648.0);
        assert_eq!(through(DType::Bool, -0.25), 1.0);
        assert_eq!(through(DType::Bool, 0.0), 0.0);
        let mut bytes = [0; 8];
        store(DType::I64, Number::I(i64::MAX), &mut bytes);
        assert_eq!(load(DType::I64, &bytes), Number::I(i64::MAX));
    }
}
