//! Multiply-adds in registers, and nothing else: as many as the processor can do.

use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use super::Pair;
use super::lanes::{Lanes, Numbers};
use crate::element::Number;
#[cfg(target_arch = "x86_64")]
use crate::panels::kernel::has_bf16_products;
use crate::simd::{Level, level};
use crate::vector::Plain4;

/// Chains of multiply-adds that do not wait for each other: enough for two units with a latency of six, and few enough for the registers of AVX2.
const CHAINS: usize = 12;
/// Sums of the widest vectors in all chains.
const SUMS: usize = CHAINS * 16;

/// Adds `word·word` to each chain, `rounds` times. Returns the number of multiplications and additions, if a word is one factor.
///
/// The sums begin with different values, and end where the compiler must have them, so that no chain can be left out.
#[inline(always)]
// Plain loops, as in `kernel.rs`.
#[allow(clippy::needless_range_loop)]
fn chains<L: Lanes>(word: L::Word, rounds: u64) -> u64 {
    let mut values = [L::Sum::default(); SUMS];
    for i in 0..SUMS {
        values[i] = L::Sum::from_f64(i as f64);
    }
    black_box(&mut values);
    let (a, b) = (L::splat(black_box(word)), L::splat(black_box(word)));
    let mut sums = [L::zero(); CHAINS];
    for c in 0..CHAINS {
        // SAFETY: there are values for the widest vectors of all chains; so below.
        sums[c] = unsafe { L::load_sums(values.as_ptr().add(c * L::N)) };
    }
    for _ in 0..rounds {
        for c in 0..CHAINS {
            sums[c] = a.multiply_add(b, sums[c]);
        }
    }
    for c in 0..CHAINS {
        // SAFETY: see above.
        unsafe { L::store(sums[c], values.as_mut_ptr().add(c * L::N)) };
    }
    black_box(&values);
    2 * rounds * (CHAINS * L::N) as u64
}

macro_rules! rounds {
    ($(#[$doc:meta])* $name:ident, $R:ty, $wide:ident, $narrow:ident) => {
        $(#[$doc])*
        pub(crate) fn $name(rounds: u64) -> u64 {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            fn wide(rounds: u64) -> u64 {
                chains::<super::lanes::Wide<std::arch::x86_64::$wide>>(0.0625, rounds)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn narrow(rounds: u64) -> u64 {
                chains::<Numbers<std::arch::x86_64::$narrow>>(0.0625, rounds)
            }
            match level() {
                // SAFETY: `level` found these features on this processor.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { wide(rounds) },
                // SAFETY: `level` found these features on this processor.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { narrow(rounds) },
                Level::Baseline => chains::<Numbers<Plain4<$R>>>(0.0625, rounds),
            }
        }
    };
}
rounds!(
    /// Does `rounds` rounds in f32. Returns the number of multiplications and additions.
    rounds_f32,
    f32,
    __m512,
    __m256
);
rounds!(
    /// The same in f64.
    rounds_f64,
    f64,
    __m512d,
    __m256d
);

/// The same for products of bf16, which are summed in f32: by the instruction for pairs if the processor has it, otherwise as those of f32.
pub(crate) fn rounds_bf16(rounds: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn pairs(rounds: u64) -> u64 {
        // Both halves are 1/16.
        2 * chains::<super::lanes::Wide<std::arch::x86_64::__m512i>>(Pair(0x3d80_3d80), rounds)
    }
    #[cfg(target_arch = "x86_64")]
    if has_bf16_products() {
        // SAFETY: the processor has these features.
        return unsafe { pairs(rounds) };
    }
    rounds_f32(rounds)
}
