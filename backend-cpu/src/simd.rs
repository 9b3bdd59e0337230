//! One source for several instruction sets. Loops are written plainly over slices and compiled once per set. The best set of the processor
//! is called.
//!
//! A kernel's inner loop is an `#[inline(always)] fn body<S: Isa, ..>(..)`; [`simd!`] makes the function that callers use. Everything that
//! such a body calls must be `#[inline(always)]` too, or it is compiled for the least instruction set. So a body uses no iterator adaptors
//! whose closures contain arithmetic (`map(..).sum()`); `for` loops over zipped slices are fine.

use crate::vector::{Plain4, Vector};

/// Operations that differ between instruction sets.
pub(crate) trait Isa: Copy {
    /// Vectors of f32.
    type F32: Vector<f32>;
    /// Vectors of f64.
    type F64: Vector<f64>;
    /// `a·b + c`, rounded once if the set has the instruction.
    fn fma32(a: f32, b: f32, c: f32) -> f32;
    /// `a·b + c`, rounded once if the set has the instruction.
    fn fma64(a: f64, b: f64, c: f64) -> f64;
}

/// No fused multiply-add. Without the instruction, a call of the library's function takes a hundred times as long.
#[derive(Clone, Copy)]
pub(crate) struct Separate;

/// Fused multiply-add. On x86 it also means AVX2 and F16C, so that only functions compiled for these may name it.
#[derive(Clone, Copy)]
pub(crate) struct Fused;

impl Isa for Separate {
    type F32 = Plain4<f32>;
    type F64 = Plain4<f64>;
    #[inline(always)]
    fn fma32(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }
}

impl Isa for Fused {
    #[cfg(target_arch = "x86_64")]
    type F32 = std::arch::x86_64::__m256;
    #[cfg(target_arch = "x86_64")]
    type F64 = std::arch::x86_64::__m256d;
    #[cfg(not(target_arch = "x86_64"))]
    type F32 = Plain4<f32>;
    #[cfg(not(target_arch = "x86_64"))]
    type F64 = Plain4<f64>;
    #[inline(always)]
    fn fma32(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
}

/// Instruction sets for which bodies are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Instructions that every processor of the architecture has.
    Baseline,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Returns the best set of this processor. The standard library caches it: two loads.
#[inline]
pub(crate) fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        return if wide { Level::Avx512 } else { Level::Avx2 };
    }
    Level::Baseline
}

/// The set that [`Level::Baseline`] stands for.
#[cfg(target_arch = "aarch64")]
pub(crate) type BaselineIsa = Fused;
/// The set that [`Level::Baseline`] stands for.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) type BaselineIsa = Separate;

/// `simd! { fn name<T: Bound>(arg: Type, ..) -> Type = body; }` defines `name`, which calls `body::<S, T>(arg, ..)` compiled for
/// the processor's instruction set `S`. Generic parameters take one path as bound.
macro_rules! simd {
    ($(
        $(#[$doc:meta])*
        $vis:vis fn $name:ident $(<$($G:ident: $B:path),+ $(,)?>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident;
    )*) => {$(
        $(#[$doc])*
        #[inline]
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($G: $B),+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$($G: $B),+>)? ($($arg: $ty),*) $(-> $ret)? {
                $body::<$crate::simd::Fused $($(, $G)+)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$($G: $B),+>)? ($($arg: $ty),*) $(-> $ret)? {
                $body::<$crate::simd::Fused $($(, $G)+)?>($($arg),*)
            }
            match $crate::simd::level() {
                // SAFETY: `level` found these features on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512 $(::<$($G),+>)? ($($arg),*) },
                // SAFETY: `level` found these features on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2 $(::<$($G),+>)? ($($arg),*) },
                $crate::simd::Level::Baseline => $body::<$crate::simd::BaselineIsa $($(, $G)+)?>($($arg),*),
            }
        }
    )*};
}
pub(crate) use simd;
