//! Fill, copy, arithmetic, selection: functions for [`Pointwise`].

mod arithmetic;
mod copy;
mod gradient;
mod select;
mod unary;

pub(crate) use arithmetic::{binary, binary_then, supports_binary, ternary};
pub(crate) use copy::{copy, fill};
pub(crate) use gradient::unary_grad;
pub(crate) use select::{masked_fill, select, triangle};
pub(crate) use unary::{supports_unary, then, unary, unary_then};

/// Functions of floats that WGSL lacks or leaves unspecified: `erfc`, powers, saturating `tanh`.
const FUNCTIONS: &str = include_str!("functions.wgsl");
/// 64-bit integers as two words, the low one first.
const I64: &str = include_str!("i64.wgsl");

use memcore::DType;
use memcore::backend::Operand;

use crate::element::Elem;

/// The bits of `value` as an element of type `dtype`, low word first; floats round to nearest even, floats to integers
/// truncate, anything to bool is `!= 0`.
pub(crate) fn bits_of(value: f64, dtype: DType) -> [u32; 2] {
    match dtype {
        DType::F32 => [(value as f32).to_bits(), 0],
        DType::F16 => [half::f16::from_f32(to_odd(value)).to_bits().into(), 0],
        DType::BF16 => [half::bf16::from_f32(to_odd(value)).to_bits().into(), 0],
        DType::I64 => words(value as i64 as u64),
        DType::I32 => [value as i64 as i32 as u32, 0],
        DType::I8 | DType::U8 => [(value as i64 as u8).into(), 0],
        DType::Bool => [(value != 0.0).into(), 0],
        DType::F64 | DType::C64 => words(value.to_bits()),
    }
}

/// Rounds `value` to f32 with the last bit set if the result is not exact (round to odd), so that rounding it further
/// to 16 bits rounds only once.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || !near.is_finite() {
        return near;
    }
    let toward_zero = if f64::from(near).abs() > value.abs() { f32::from_bits(near.to_bits() - 1) } else { near };
    f32::from_bits(toward_zero.to_bits() | 1)
}

fn words(bits: u64) -> [u32; 2] {
    [bits as u32, (bits >> 32) as u32]
}

/// An operand with the element type for arithmetic on it.
fn typed(operand: &Operand) -> (&Operand, Elem) {
    (operand, Elem::from_dtype(operand.dtype))
}

/// An operand whose elements are only moved.
fn moved(operand: &Operand) -> (&Operand, Elem) {
    (operand, Elem::bits(operand.dtype))
}

/// A scalar for arithmetic in f32.
fn f(value: f64) -> u32 {
    (value as f32).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_rounded_once() {
        // Slightly above a tie: plain f32 would lose the difference, and the tie would round down to even.
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(bits_of(above, DType::F16), [0x3c01, 0]);
        assert_eq!(bits_of(1.0 + 2f64.powi(-11), DType::F16), [0x3c00, 0]);
        assert_eq!(bits_of(1.0 + 2f64.powi(-8) + 2f64.powi(-40), DType::BF16), [0x3f81, 0]);
        assert_eq!(bits_of(1.0 + 2f64.powi(-8), DType::BF16), [0x3f80, 0]);
        assert_eq!(bits_of(-3.0, DType::I64), [0xffff_fffd, 0xffff_ffff]);
        assert_eq!(bits_of(f64::NEG_INFINITY, DType::BF16), [0xff80, 0]);
    }
}
