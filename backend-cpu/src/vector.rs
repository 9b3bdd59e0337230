//! Explicit vectors, for loops that compilers do not vectorise themselves: reductions, whose order of additions they must keep.

use half::f16;

/// A vector of a few numbers.
pub(crate) trait Vector<R>: Copy {
    const N: usize;
    /// Makes a vector with the same number everywhere.
    fn splat(x: R) -> Self;
    /// Loads the numbers at `src`.
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
    /// Returns the larger of each pair; NaN wins.
    fn larger(self, other: Self) -> Self;
    /// Returns the smaller of each pair; NaN wins.
    fn smaller(self, other: Self) -> Self;
    /// Loads and widens the numbers at `src`, if the instruction set has an instruction for it.
    ///
    /// # Safety
    /// [`Vector::N`] of them lie there.
    #[inline(always)]
    unsafe fn load_f16(src: *const f16) -> Option<Self> {
        let _ = src;
        None
    }
    /// Writes the numbers to `out`, rounded to nearest even, if the instruction set has an instruction for it. Returns whether it has.
    ///
    /// # Safety
    /// There is room for [`Vector::N`].
    #[inline(always)]
    unsafe fn store_f16(self, out: *mut f16) -> bool {
        let _ = out;
        false
    }
}

/// A vector for any instruction set, left to the compiler. `plain.rs` has its operations.
#[derive(Clone, Copy)]
pub(crate) struct Plain4<R>(pub(crate) [R; 4]);

/// AVX2's vectors. [`Fused`](crate::simd::Fused) names them, and only functions compiled for AVX2, FMA and F16C use that.
#[cfg(target_arch = "x86_64")]
macro_rules! avx {
    ($R:ty, $V:ident, $n:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident, $min:ident, $cmp:ident, $blend:ident, { $($more:item)* }) => {
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
            $($more)*
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
    _mm256_blendv_ps,
    {
        #[inline(always)]
        unsafe fn load_f16(src: *const f16) -> Option<Self> {
            use std::arch::x86_64::*;
            // SAFETY: as in `splat`, and F16C; the caller asserts that eight of 16 bits lie there.
            Some(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(src.cast())) })
        }
        #[inline(always)]
        unsafe fn store_f16(self, out: *mut f16) -> bool {
            use std::arch::x86_64::*;
            // SAFETY: as in `load_f16`; the caller asserts that there is room.
            unsafe { _mm_storeu_si128(out.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) };
            true
        }
    }
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
    _mm256_blendv_pd,
    {}
);

/// Most numbers in a vector.
pub(crate) const MAX_N: usize = 8;

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
