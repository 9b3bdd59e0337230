//! Element types, and the types in which they are computed: 16-bit floats in f32, integers in i64. (16-bit types are in `halves.rs`.)

use std::mem::MaybeUninit;

use crate::parallel::Plain;
use crate::product::Multiplied;
use crate::simd::Isa;
use crate::view::Stored;

/// A type of arithmetic: f32, f64 or i64.
pub(crate) trait Number: Plain + PartialOrd + Default {
    /// Converts a kernel's scalar.
    fn from_f64(x: f64) -> Self;
    /// `self + other`; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// `self − other`; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// `self · other`; integers wrap.
    fn times(self, other: Self) -> Self;
    /// Type of long sums: f64 or i64.
    type Total: Number;
    /// Lowest number of the type.
    const LOWEST: Self;
    /// Highest number of the type.
    const HIGHEST: Self;
    /// Converts to the wider type, exactly.
    fn widen(self) -> Self::Total;
    /// Converts from the wider type, rounding.
    fn narrow(total: Self::Total) -> Self;
    /// Mean `total/count`; integers truncate.
    fn mean(total: Self::Total, count: usize) -> Self::Total;
    /// `|self|`
    fn magnitude(self) -> Self;
    /// True for NaN.
    fn is_nan(self) -> bool;
}

/// A floating-point type of arithmetic. Its functions are in `math.rs`.
pub(crate) trait Real:
    Number
    + Element<Compute = Self>
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + Multiplied
{
    /// Vectors of the type in an instruction set.
    type Vector<S: Isa>: crate::vector::Vector<Self>;
    /// Converts to f64, exactly.
    fn to_f64(self) -> f64;
    /// `self·b + c`
    fn fma<S: Isa>(self, b: Self, c: Self) -> Self;
    /// `√x`
    fn sqrt(self) -> Self;
    /// `eˣ`
    fn exp<S: Isa>(self) -> Self;
    /// `eˣ` for `x ≤ 0` (or NaN). It is cheaper, because results below the least normal number may be 0.
    #[inline(always)]
    fn exp_nonpositive<S: Isa>(self) -> Self {
        self.exp::<S>()
    }
    /// `ln x`
    fn ln<S: Isa>(self) -> Self;
    /// `tanh x`
    fn tanh<S: Isa>(self) -> Self;
    /// `(Φ(x), φ(x))`: distribution function and density of the standard normal distribution.
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

/// Returns the larger number; NaN wins.
#[inline(always)]
pub(crate) fn larger<C: Number>(a: C, b: C) -> C {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns the smaller number; NaN wins.
#[inline(always)]
pub(crate) fn smaller<C: Number>(a: C, b: C) -> C {
    if a < b || a.is_nan() { a } else { b }
}

/// An element type.
pub(crate) trait Element: Stored {
    /// Type in which it is computed.
    type Compute: Number;
    fn get(self) -> Self::Compute;
    /// Rounds a value to this type: floats to nearest even, integers by their low bits.
    fn put(x: Self::Compute) -> Self;
    #[inline(always)]
    fn get_all<S: Isa>(src: &[Self], out: &mut [MaybeUninit<Self::Compute>]) {
        for (o, x) in out.iter_mut().zip(src) {
            o.write(x.get());
        }
    }
    /// Rounds many values to this type.
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
