//! Element types and the types that they are computed in: 16-bit floats in f32, integers in i64.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use crate::parallel::Plain;
use crate::simd::Isa;
use crate::view::Stored;

/// What arithmetic is done in: f32, f64 or i64.
pub(crate) trait Number: Plain + PartialOrd + Default {
    /// From a kernel's scalar.
    fn from_f64(x: f64) -> Self;
    /// `self + other`; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// `self − other`; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// `self · other`; integers wrap.
    fn times(self, other: Self) -> Self;
    /// What long sums are kept in: f64 or i64.
    type Total: Number;
    /// No number of the type is below it.
    const LOWEST: Self;
    /// No number of the type is above it.
    const HIGHEST: Self;
    /// To the wider type, exactly.
    fn widen(self) -> Self::Total;
    /// From the wider type, rounded.
    fn narrow(total: Self::Total) -> Self;
    /// A mean: `total/count`; integers truncate.
    fn mean(total: Self::Total, count: usize) -> Self::Total;
    /// `|self|`
    fn magnitude(self) -> Self;
    /// Whether this is not a number.
    fn is_nan(self) -> bool;
}

/// A floating-point type that arithmetic is done in. Functions are in `math.rs`.
pub(crate) trait Real:
    Number
    + Element<Compute = Self>
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
{
    /// Its vectors in an instruction set.
    type Vector<S: Isa>: crate::vector::Vector<Self>;
    /// To f64, exactly.
    fn to_f64(self) -> f64;
    /// `self·b + c`
    fn fma<S: Isa>(self, b: Self, c: Self) -> Self;
    /// `√x`
    fn sqrt(self) -> Self;
    /// `eˣ`
    fn exp<S: Isa>(self) -> Self;
    /// `eˣ` for `x ≤ 0` (or NaN), where results below the least normal number may be 0: cheaper.
    #[inline(always)]
    fn exp_nonpositive<S: Isa>(self) -> Self {
        self.exp::<S>()
    }
    /// `ln x`
    fn ln<S: Isa>(self) -> Self;
    /// `tanh x`
    fn tanh<S: Isa>(self) -> Self;
    /// Φ(x), the distribution function of the standard normal, and φ(x), its density.
    fn normal<S: Isa>(self) -> (Self, Self);
    /// `sin x`
    fn sin(self) -> Self;
    /// `cos x`
    fn cos(self) -> Self;
    /// `x^y`
    fn pow(self, y: Self) -> Self;
    /// `1/(1 + e⁻ˣ)`
    #[inline(always)]
    fn sigmoid<S: Isa>(self) -> Self {
        let one = Self::from_f64(1.0);
        one / (one + (-self).exp::<S>())
    }
}

macro_rules! float_number {
    ($T:ident) => {
        impl Number for $T {
            type Total = f64;
            const LOWEST: Self = $T::NEG_INFINITY;
            const HIGHEST: Self = $T::INFINITY;
            #[inline(always)]
            fn widen(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn narrow(total: f64) -> Self {
                total as $T
            }
            fn mean(total: f64, count: usize) -> f64 {
                total / count as f64
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $T
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
        }
    };
}
float_number!(f32);
float_number!(f64);

impl Number for i64 {
    type Total = i64;
    const LOWEST: Self = i64::MIN;
    const HIGHEST: Self = i64::MAX;
    #[inline(always)]
    fn widen(self) -> i64 {
        self
    }
    #[inline(always)]
    fn narrow(total: i64) -> Self {
        total
    }
    fn mean(total: i64, count: usize) -> i64 {
        total / (count as i64).max(1)
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as i64
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.wrapping_abs()
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
}

/// An element type.
pub(crate) trait Element: Stored {
    /// What it is computed in.
    type Compute: Number;
    /// The value.
    fn get(self) -> Self::Compute;
    /// The value rounded to this type: floats to nearest even, integers by their low bits.
    fn put(x: Self::Compute) -> Self;
    /// Many values.
    #[inline(always)]
    fn get_all<S: Isa>(src: &[Self], out: &mut [MaybeUninit<Self::Compute>]) {
        for (o, x) in out.iter_mut().zip(src) {
            o.write(x.get());
        }
    }
    /// Many values, rounded to this type.
    #[inline(always)]
    fn put_all<S: Isa>(values: &[Self::Compute], out: &mut [Self]) {
        for (o, &x) in out.iter_mut().zip(values) {
            *o = Self::put(x);
        }
    }
}

/// A floating-point element type.
pub(crate) trait Float: Element<Compute: Real> {}
impl<T: Element<Compute: Real>> Float for T {}

macro_rules! same {
    ($($T:ident)*) => {$(
        impl Element for $T {
            type Compute = $T;
            #[inline(always)]
            fn get(self) -> $T {
                self
            }
            #[inline(always)]
            fn put(x: $T) -> $T {
                x
            }
        }
    )*};
}
same!(f32 f64 i64);

macro_rules! integer {
    ($($T:ident)*) => {$(
        impl Element for $T {
            type Compute = i64;
            #[inline(always)]
            fn get(self) -> i64 {
                self as i64
            }
            #[inline(always)]
            fn put(x: i64) -> $T {
                x as $T
            }
        }
    )*};
}
integer!(i32 i8 u8);

impl Element for bf16 {
    type Compute = f32;
    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    #[inline(always)]
    fn put(x: f32) -> Self {
        bf16::from_bits(f32_to_bf16(x))
    }
}

impl Element for f16 {
    type Compute = f32;
    #[inline(always)]
    fn get(self) -> f32 {
        f16_to_f32(self.to_bits())
    }
    #[inline(always)]
    fn put(x: f32) -> Self {
        f16::from_bits(f32_to_f16(x))
    }
    #[inline(always)]
    fn get_all<S: Isa>(src: &[Self], out: &mut [MaybeUninit<f32>]) {
        crate::vector::widen_f16::<S::F32>(src, out);
    }
    #[inline(always)]
    fn put_all<S: Isa>(values: &[f32], out: &mut [Self]) {
        crate::vector::narrow_f16::<S::F32>(values, out);
    }
}

/// Without branches, so that loops over it vectorise: rounding adds just below half of the last place, and the last
/// place's own bit.
#[inline(always)]
fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let nan = bits >> 16 | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
}

/// The exponent's bias is changed by a multiplication, which handles subnormals too.
#[inline(always)]
fn f16_to_f32(h: u16) -> f32 {
    let h = h as u32;
    let sign = (h & 0x8000) << 16;
    let shifted = (h & 0x7fff) << 13;
    let scaled = (f32::from_bits(shifted) * f32::from_bits(0x7780_0000)).to_bits();
    let magnitude = if shifted >= 0x0f80_0000 { shifted | 0x7f80_0000 } else { scaled };
    f32::from_bits(sign | magnitude)
}

/// Normal results by integer rounding, subnormal ones by adding 0.5, whose last place is f16's least.
#[inline(always)]
fn f32_to_f16(x: f32) -> u16 {
    let sign = x.to_bits() >> 16 & 0x8000;
    let bits = x.to_bits() & 0x7fff_ffff;
    let normal = bits.wrapping_add(0xc800_0fff).wrapping_add(bits >> 13 & 1) >> 13;
    let subnormal = (f32::from_bits(bits) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let special = if bits > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let magnitude = if bits >= 0x4780_0000 {
        special
    } else if bits < 0x3880_0000 {
        subnormal
    } else {
        normal
    };
    (sign | magnitude) as u16
}

/// Calls a generic function for the element type of a dtype: `float_type!(dtype, T => f::<T>(..), else other)`.
macro_rules! float_type {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            memcore::DType::F32 => {
                type $T = f32;
                $body
            }
            memcore::DType::F64 => {
                type $T = f64;
                $body
            }
            memcore::DType::F16 => {
                type $T = half::f16;
                $body
            }
            memcore::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            _ => $other,
        }
    };
}
pub(crate) use float_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_and_bf16_converts_as_the_standard_says() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(h.get() == h.to_f32() || h.is_nan() && h.get().is_nan(), "{bits:#x}");
            assert!(b.get() == b.to_f32() || b.is_nan() && b.get().is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn rounding_to_16_bits_is_to_nearest_even() {
        let mut bits = 0u32;
        loop {
            let x = f32::from_bits(bits);
            let (h, b) = (f16::put(x), bf16::put(x));
            assert!(h.to_bits() == f16::from_f32(x).to_bits() || x.is_nan() && h.is_nan(), "{bits:#x}");
            assert!(b.to_bits() == bf16::from_f32(x).to_bits() || x.is_nan() && b.is_nan(), "{bits:#x}");
            // An odd step that visits every exponent, and ties between representable neighbours.
            let (next, end) = bits.overflowing_add(if bits & 0xfff == 0 { 0xfff } else { 1 + (bits >> 20) });
            if end {
                break;
            }
            bits = next;
        }
        for tie in [0x3f80_8000u32, 0x3f81_8000, 0x3880_1000, 0x3880_3000, 0x477f_f000, 0x3300_0000, 0x3300_0001] {
            let x = f32::from_bits(tie);
            assert_eq!(f16::put(x).to_bits(), f16::from_f32(x).to_bits());
            assert_eq!(bf16::put(x).to_bits(), bf16::from_f32(x).to_bits());
        }
    }
}
