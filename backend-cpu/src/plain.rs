//! Vectors of any instruction set: four numbers, and loops that are left to the compiler.

use crate::element::{Real, larger, smaller};
use crate::simd::BaselineIsa;
use crate::vector::{Plain4, Vector};

impl<R: Real> Plain4<R> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(R, R) -> R) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl<R: Real> Vector<R> for Plain4<R> {
    const N: usize = 4;
    #[inline(always)]
    fn splat(x: R) -> Self {
        Self([x; 4])
    }
    #[inline(always)]
    unsafe fn load(src: *const R) -> Self {
        // SAFETY: the caller asserts it; an array has its element's alignment.
        Self(unsafe { *src.cast::<[R; 4]>() })
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut R) {
        // SAFETY: the caller asserts it; an array has its element's alignment.
        unsafe { *out.cast::<[R; 4]>() = self.0 };
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].fma::<BaselineIsa>(b.0[i], c.0[i])))
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.zip(other, larger)
    }
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        self.zip(other, smaller)
    }
}
