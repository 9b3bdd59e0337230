//! Vectors of words for the kernel's loop.

use super::Pair;
use crate::element::Real;
use crate::vector::{Plain4, Vector};

/// Vector of [`Lanes::N`] words, which is multiplied into a vector of as many sums.
pub(super) trait Lanes: Copy {
    /// Type of a word.
    type Word: Copy;
    /// Type of a sum.
    type Sum: Real;
    /// Vector of sums.
    type Sums: Copy;
    /// Number of words in a vector.
    const N: usize;
    /// Returns sums that are all 0.
    fn zero() -> Self::Sums;
    /// Loads the sums at `from`.
    ///
    /// # Safety
    /// [`Lanes::N`] of them lie there.
    unsafe fn load_sums(from: *const Self::Sum) -> Self::Sums;
    /// Loads the words at `from`.
    ///
    /// # Safety
    /// [`Lanes::N`] of them lie there.
    unsafe fn load(from: *const Self::Word) -> Self;
    /// Returns a vector with one word everywhere.
    fn splat(word: Self::Word) -> Self;
    /// Returns `sums + self·other`.
    fn multiply_add(self, other: Self, sums: Self::Sums) -> Self::Sums;
    /// Writes sums to `to`.
    ///
    /// # Safety
    /// There is room for [`Lanes::N`].
    unsafe fn store(sums: Self::Sums, to: *mut Self::Sum);
}

/// Vector of numbers, as other kernels use it too.
#[derive(Clone, Copy)]
pub(super) struct Numbers<V>(V);

macro_rules! numbers {
    ($(#[$when:meta])? $R:ty, $V:ty) => {
        $(#[$when])?
        impl Lanes for Numbers<$V> {
            type Word = $R;
            type Sum = $R;
            type Sums = $V;
            const N: usize = <$V as Vector<$R>>::N;
            #[inline(always)]
            fn zero() -> $V {
                <$V as Vector<$R>>::splat(0.0)
            }
            #[inline(always)]
            unsafe fn load_sums(from: *const $R) -> $V {
                // SAFETY: as the caller asserts.
                unsafe { <$V as Vector<$R>>::load(from) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $R) -> Self {
                // SAFETY: as the caller asserts.
                Self(unsafe { <$V as Vector<$R>>::load(from) })
            }
            #[inline(always)]
            fn splat(word: $R) -> Self {
                Self(<$V as Vector<$R>>::splat(word))
            }
            #[inline(always)]
            fn multiply_add(self, other: Self, sums: $V) -> $V {
                self.0.fma(other.0, sums)
            }
            #[inline(always)]
            unsafe fn store(sums: $V, to: *mut $R) {
                // SAFETY: as the caller asserts.
                unsafe { Vector::<$R>::store(sums, to) };
            }
        }
    };
}
numbers!(f32, Plain4<f32>);
numbers!(f64, Plain4<f64>);
numbers!(
    #[cfg(target_arch = "x86_64")]
    f32,
    std::arch::x86_64::__m256
);
numbers!(
    #[cfg(target_arch = "x86_64")]
    f64,
    std::arch::x86_64::__m256d
);

/// Vectors of AVX-512. Only functions that are compiled for AVX-512 name them.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Lanes, Pair};

    /// Vector of 16 f32, 8 f64, or 16 pairs of bf16.
    #[derive(Clone, Copy)]
    pub(in crate::panels) struct Wide<V>(V);

    macro_rules! wide {
        ($Word:ty, $Sum:ty, $V:ident, $Sums:ident, $n:literal, $zero:ident, $load_sums:ident, $load:expr, $splat:expr, $fma:expr, $store:ident) => {
            impl Lanes for Wide<$V> {
                type Word = $Word;
                type Sum = $Sum;
                type Sums = $Sums;
                const N: usize = $n;
                #[inline(always)]
                fn zero() -> $Sums {
                    // SAFETY: only called on processors that have the instruction (see the module's text); so below.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn load_sums(from: *const $Sum) -> $Sums {
                    // SAFETY: the caller asserts that the sums lie there.
                    unsafe { $load_sums(from) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $Word) -> Self {
                    // SAFETY: the caller asserts that the words lie there.
                    Self(unsafe { $load(from.cast()) })
                }
                #[inline(always)]
                fn splat(word: $Word) -> Self {
                    // SAFETY: as in `zero`.
                    Self(unsafe { $splat(word) })
                }
                #[inline(always)]
                fn multiply_add(self, other: Self, sums: $Sums) -> $Sums {
                    // SAFETY: as in `zero`.
                    unsafe { $fma(self.0, other.0, sums) }
                }
                #[inline(always)]
                unsafe fn store(sums: $Sums, to: *mut $Sum) {
                    // SAFETY: the caller asserts that there is room.
                    unsafe { $store(to, sums) };
                }
            }
        };
    }
    wide!(
        f32,
        f32,
        __m512,
        __m512,
        16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_loadu_ps,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_storeu_ps
    );
    wide!(
        f64,
        f64,
        __m512d,
        __m512d,
        8,
        _mm512_setzero_pd,
        _mm512_loadu_pd,
        _mm512_loadu_pd,
        _mm512_set1_pd,
        _mm512_fmadd_pd,
        _mm512_storeu_pd
    );
    wide!(
        Pair,
        f32,
        __m512i,
        __m512,
        16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_loadu_si512,
        splat_pair,
        dot_pairs,
        _mm512_storeu_ps
    );

    #[inline(always)]
    unsafe fn splat_pair(pair: Pair) -> __m512i {
        // SAFETY: the caller runs on a processor with AVX-512.
        unsafe { _mm512_set1_epi32(pair.0.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn dot_pairs(a: __m512i, b: __m512i, sums: __m512) -> __m512 {
        // SAFETY: the caller runs on a processor with AVX512_BF16; the types are the same 64 bytes.
        unsafe {
            _mm512_dpbf16_ps(
                sums,
                std::mem::transmute::<__m512i, __m512bh>(a),
                std::mem::transmute::<__m512i, __m512bh>(b),
            )
        }
    }
}
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Wide;

/// Pairs of bf16 without the processor's instruction for them. The results are that instruction's, except that subnormal numbers count here.
#[derive(Clone, Copy)]
pub(super) struct PlainPair(Pair);

impl PlainPair {
    #[inline(always)]
    fn halves(self) -> [f32; 2] {
        [f32::from_bits(self.0.0 << 16), f32::from_bits(self.0.0 & 0xffff_0000)]
    }
}

impl Lanes for PlainPair {
    type Word = Pair;
    type Sum = f32;
    type Sums = f32;
    const N: usize = 1;
    #[inline(always)]
    fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn load_sums(from: *const f32) -> f32 {
        // SAFETY: the caller asserts that a sum lies there.
        unsafe { *from }
    }
    #[inline(always)]
    unsafe fn load(from: *const Pair) -> Self {
        // SAFETY: the caller asserts that a word lies there.
        Self(unsafe { *from })
    }
    #[inline(always)]
    fn splat(word: Pair) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn multiply_add(self, other: Self, sum: f32) -> f32 {
        let (a, b) = (self.halves(), other.halves());
        sum + (a[0] * b[0] + a[1] * b[1])
    }
    #[inline(always)]
    unsafe fn store(sum: f32, to: *mut f32) {
        // SAFETY: the caller asserts that there is room.
        unsafe { *to = sum };
    }
}
