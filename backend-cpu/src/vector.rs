//! Explicit vectors, for the loops that compilers do not vectorise by themselves: reductions, whose order of additions they must keep.

use crate::element::Real;
use crate::elementwise::{larger, smaller};

/// A few numbers that operations treat alike.
pub(crate) trait Vector<R: Real>: Copy {
    /// How many.
    const N: usize;
    /// The same number everywhere.
    fn splat(x: R) -> Self;
    /// The numbers at `src`.
    ///
    /// # Safety
    /// [`Vector::N`] of them lie there.
    unsafe fn load(src: *const R) -> Self;
    /// Writes the numbers to `out`.
    ///
    /// # Safety
    /// There is room for [`Vector::N`].
    unsafe fn store(self, out: *mut R);
    /// `self + other`
    fn add(self, other: Self) -> Self;
    /// `self − other`
    fn sub(self, other: Self) -> Self;
    /// `self · other`
    fn mul(self, other: Self) -> Self;
    /// `self·b + c`
    fn fma(self, b: Self, c: Self) -> Self;
    /// The larger of each pair; NaN wins.
    fn larger(self, other: Self) -> Self;
    /// The smaller of each pair; NaN wins.
    fn smaller(self, other: Self) -> Self;
}

/// A vector of any instruction set, left to the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Plain4<R>([R; 4]);

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
        Self(std::array::from_fn(|i| self.0[i].fma::<crate::simd::BaselineIsa>(b.0[i], c.0[i])))
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

/// AVX2's vectors. [`Fused`](crate::simd::Fused) names them, and only functions compiled for AVX2 and FMA use that.
#[cfg(target_arch = "x86_64")]
macro_rules! avx {
    ($R:ty, $V:ident, $n:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident, $min:ident, $cmp:ident, $blend:ident) => {
        impl Vector<$R> for std::arch::x86_64::$V {
            const N: usize = $n;
            #[inline(always)]
            fn splat(x: $R) -> Self {
                // SAFETY: only called on processors that have AVX2 (see the macro's text); so below.
                unsafe { std::arch::x86_64::$splat(x) }
            }
            #[inline(always)]
            unsafe fn load(src: *const $R) -> Self {
                // SAFETY: the caller asserts that the elements lie there.
                unsafe { std::arch::x86_64::$load(src) }
            }
            #[inline(always)]
            unsafe fn store(self, out: *mut $R) {
                // SAFETY: the caller asserts that there is room.
                unsafe { std::arch::x86_64::$store(out, self) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: as in `splat`.
                unsafe { std::arch::x86_64::$add(self, other) }
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                // SAFETY: as in `splat`.
                unsafe { std::arch::x86_64::$sub(self, other) }
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                // SAFETY: as in `splat`.
                unsafe { std::arch::x86_64::$mul(self, other) }
            }
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                // SAFETY: as in `splat`, and FMA.
                unsafe { std::arch::x86_64::$fma(self, b, c) }
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                // SAFETY: as in `splat`. The instruction gives its second operand when either is NaN, so a NaN in the first one
                // has to be put back.
                unsafe {
                    use std::arch::x86_64::*;
                    $blend($max(self, other), self, $cmp::<_CMP_UNORD_Q>(self, self))
                }
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                // SAFETY: as in `larger`.
                unsafe {
                    use std::arch::x86_64::*;
                    $blend($min(self, other), self, $cmp::<_CMP_UNORD_Q>(self, self))
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
avx!(
    f32,
    __m256,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_max_ps,
    _mm256_min_ps,
    _mm256_cmp_ps,
    _mm256_blendv_ps
);
#[cfg(target_arch = "x86_64")]
avx!(
    f64,
    __m256d,
    4,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_add_pd,
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_fmadd_pd,
    _mm256_max_pd,
    _mm256_min_pd,
    _mm256_cmp_pd,
    _mm256_blendv_pd
);

/// The most numbers in a vector.
pub(crate) const MAX_N: usize = 8;

/// A vector of a type's values, converted. (No const generics of associated constants: a buffer of the largest size serves.)
///
/// # Safety
/// `V::N` elements lie at `src`.
#[inline(always)]
pub(crate) unsafe fn load<T: crate::element::Float, V: Vector<T::Compute>>(src: *const T) -> V {
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<T::Compute>() {
        // SAFETY: the same type; the caller asserts the rest.
        return unsafe { V::load(src.cast()) };
    }
    let mut buffer = [<T::Compute as Default>::default(); MAX_N];
    for (i, value) in buffer[..V::N].iter_mut().enumerate() {
        // SAFETY: the caller asserts it.
        *value = unsafe { *src.add(i) }.get();
    }
    // SAFETY: the buffer holds `MAX_N` ≥ `V::N` numbers.
    unsafe { V::load(buffer.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, simd};

    simd! {
        fn extrema(a: &[f32; 8], b: &[f32; 8], out: &mut [[f32; 8]; 2]) = extrema_body;
    }

    #[inline(always)]
    fn extrema_body<S: Isa>(a: &[f32; 8], b: &[f32; 8], out: &mut [[f32; 8]; 2]) {
        let n = <S::F32 as Vector<f32>>::N;
        for i in (0..8).step_by(n) {
            // SAFETY: `n` divides 8.
            unsafe {
                let (a, b) = (S::F32::load(a[i..].as_ptr()), S::F32::load(b[i..].as_ptr()));
                a.larger(b).store(out[0][i..].as_mut_ptr());
                a.smaller(b).store(out[1][i..].as_mut_ptr());
            }
        }
    }

    #[test]
    fn nan_wins_from_either_side() {
        let nan = f32::NAN;
        let (a, b) = ([1.0, nan, 3.0, nan, -1.0, 0.0, 5.0, f32::INFINITY], [2.0, 1.0, nan, nan, -2.0, 0.0, 4.0, nan]);
        let mut out = [[0.0; 8]; 2];
        extrema(&a, &b, &mut out);
        let want = [[2.0, nan, nan, nan, -1.0, 0.0, 5.0, nan], [1.0, nan, nan, nan, -2.0, 0.0, 4.0, nan]];
        for (got, want) in out.iter().flatten().zip(want.iter().flatten()) {
            assert!(got == want || got.is_nan() && want.is_nan(), "{out:?}");
        }
    }
}
