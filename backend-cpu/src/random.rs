//! Philox words, uniform numbers and dropout. The contract states the arithmetic exactly, so that results have the same bits on every
//! backend.

use memcore::DType;
use memcore::backend::kernel::{Dropout, DropoutGrad, Random, RandomKind};
use memcore::error::Result;

use crate::element::{Element, Float, Number, Real};
use crate::simd::{Isa, simd};
use crate::stream::{BLOCK, Block, Reader, Writer, for_blocks};
use crate::view::Context;

/// Number of counters whose blocks are computed side by side.
const WIDTH: usize = 32;

/// Number of counters whose state fits the registers.
const LANES: usize = 8;

/// Number of words from one call of [`words`].
const WORDS: usize = 4 * WIDTH;

const _: () = assert!(BLOCK.is_multiple_of(WORDS));

simd! {
    fn words(seed: u64, counter: u64, out: &mut [u32; WORDS]) = words_body;
}

/// Philox4x32-10 of the counters from `counter` on; `out[4·c + w]` is word `w` of block `c`.
#[inline(always)]
fn words_body<S: Isa>(seed: u64, counter: u64, out: &mut [u32; WORDS]) {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    // Words are in the low halves of u64, whose high halves are garbage, so that the products are single instructions.
    const LOW: u64 = u32::MAX as u64;
    for (group, out) in out.chunks_exact_mut(4 * LANES).enumerate() {
        let (mut k0, mut k1) = (seed as u32, (seed >> 32) as u32);
        let (mut c0, mut c1, mut c2, mut c3) = ([0u64; LANES], [0u64; LANES], [0u64; LANES], [0u64; LANES]);
        for i in 0..LANES {
            c0[i] = counter.wrapping_add((group * LANES + i) as u64);
            c1[i] = c0[i] >> 32;
        }
        for _ in 0..10 {
            for i in 0..LANES {
                let a = (c0[i] & LOW) * MULTIPLIERS[0];
                let b = (c2[i] & LOW) * MULTIPLIERS[1];
                c0[i] = (b >> 32) ^ c1[i] ^ k0 as u64;
                c2[i] = (a >> 32) ^ c3[i] ^ k1 as u64;
                c1[i] = b;
                c3[i] = a;
            }
            (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
        }
        for i in 0..LANES {
            (out[4 * i], out[4 * i + 1]) = (c0[i] as u32, c1[i] as u32);
            (out[4 * i + 2], out[4 * i + 3]) = (c2[i] as u32, c3[i] as u32);
        }
    }
}

/// Calls `f(first, words)` with the words of elements `start..start + len`; `start` is a multiple of [`BLOCK`].
fn for_words(seed: u64, offset: u64, start: usize, len: usize, mut f: impl FnMut(usize, &[u32])) {
    let mut buffer = [0; WORDS];
    for first in (0..len).step_by(WORDS) {
        words(seed, offset.wrapping_add(((start + first) / 4) as u64), &mut buffer);
        f(first, &buffer[..WORDS.min(len - first)]);
    }
}

/// `(w >> 8)·2⁻²⁴`, exact in f32.
#[inline(always)]
fn uniform(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// `out[i] = kind(philox(seed, offset, i))`.
pub(crate) fn random(ctx: &Context<'_>, k: &Random) -> Result<()> {
    let (low, high) = match k.kind {
        RandomKind::Words => return random_words(ctx, k),
        RandomKind::Uniform { low, high } => (low, high),
    };
    match k.out.dtype {
        DType::F64 => random_uniform::<f64>(ctx, k, low, high),
        DType::F16 => random_uniform::<half::f16>(ctx, k, low, high),
        DType::BF16 => random_uniform::<half::bf16>(ctx, k, low, high),
        _ => random_uniform::<f32>(ctx, k, low, high),
    }
}

fn random_words(ctx: &Context<'_>, k: &Random) -> Result<()> {
    let out = Writer::<u32>::bits(ctx, &k.out)?;
    for_blocks(ctx, k.out.numel(), |start, len| {
        let mut o = Block::new();
        // SAFETY: blocks lie in `0..numel` and are disjoint.
        unsafe {
            out.write(start, len, &mut o, |out| {
                for_words(k.seed, k.offset, start, len, |i, words| out[i..i + words.len()].copy_from_slice(words));
            });
        }
    });
    Ok(())
}

fn random_uniform<T: Float>(ctx: &Context<'_>, k: &Random, low: f64, high: f64) -> Result<()> {
    let out = Writer::typed::<T>(ctx, &k.out)?;
    let (low, high) = (T::Compute::from_f64(low), T::Compute::from_f64(high));
    for_blocks(ctx, k.out.numel(), |start, len| {
        let mut o = Block::new();
        // SAFETY: blocks lie in `0..numel` and are disjoint.
        unsafe {
            out.write(start, len, &mut o, |out| {
                for_words(k.seed, k.offset, start, len, |i, words| {
                    scale_uniform(words, low, high, &mut out[i..i + words.len()]);
                });
            });
        }
    });
    Ok(())
}

simd! {
    fn scale_uniform<R: Real>(words: &[u32], low: R, high: R, out: &mut [R]) = scale_uniform_body;
    fn keep(words: &[u32], p: f32, mask: &mut [u8]) = keep_body;
    fn apply_mask<R: Real>(x: &[R], mask: &[u8], scale: R, out: &mut [R]) = apply_mask_body;
}

#[inline(always)]
fn scale_uniform_body<S: Isa, R: Real>(words: &[u32], low: R, high: R, out: &mut [R]) {
    let range = high - low;
    for (o, &w) in out.iter_mut().zip(words) {
        // Two roundings, never fused, so that every processor gives the same bits.
        *o = low + range * R::from_f64(uniform(w) as f64);
    }
}

#[inline(always)]
fn keep_body<S: Isa>(words: &[u32], p: f32, mask: &mut [u8]) {
    for (m, &w) in mask.iter_mut().zip(words) {
        *m = (uniform(w) >= p) as u8;
    }
}

#[inline(always)]
fn apply_mask_body<S: Isa, R: Real>(x: &[R], mask: &[u8], scale: R, out: &mut [R]) {
    for ((o, &x), &m) in out.iter_mut().zip(x).zip(mask) {
        *o = if m != 0 { scale * x } else { R::default() };
    }
}

/// `mask = u ≥ p`, `out = mask ? x/(1 − p) : 0`.
pub(crate) fn dropout(ctx: &Context<'_>, k: &Dropout) -> Result<()> {
    match k.out.dtype {
        DType::F64 => dropout_t::<f64>(ctx, k),
        DType::F16 => dropout_t::<half::f16>(ctx, k),
        DType::BF16 => dropout_t::<half::bf16>(ctx, k),
        _ => dropout_t::<f32>(ctx, k),
    }
}

fn dropout_t<T: Element<Compute: Real>>(ctx: &Context<'_>, k: &Dropout) -> Result<()> {
    let x = Reader::typed::<T>(ctx, &k.x, &k.out)?;
    let mask = Writer::<u8>::bits(ctx, &k.mask)?;
    let out = Writer::typed::<T>(ctx, &k.out)?;
    let scale = T::Compute::from_f64(1.0 / (1.0 - k.p));
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let x = x.read(start, len, &mut a);
            mask.write(start, len, &mut b, |mask| {
                if k.p < 1.0 {
                    for_words(k.seed, k.offset, start, len, |i, words| {
                        keep(words, k.p as f32, &mut mask[i..i + words.len()]);
                    });
                } else {
                    mask.fill(0);
                }
                out.write(start, len, &mut o, |out| apply_mask(x, mask, scale, out));
            });
        }
    });
    Ok(())
}

/// `out = mask ? scale·grad : 0`.
pub(crate) fn dropout_grad(ctx: &Context<'_>, k: &DropoutGrad) -> Result<()> {
    match k.out.dtype {
        DType::F64 => dropout_grad_t::<f64>(ctx, k),
        DType::F16 => dropout_grad_t::<half::f16>(ctx, k),
        DType::BF16 => dropout_grad_t::<half::bf16>(ctx, k),
        _ => dropout_grad_t::<f32>(ctx, k),
    }
}

fn dropout_grad_t<T: Float>(ctx: &Context<'_>, k: &DropoutGrad) -> Result<()> {
    let grad = Reader::typed::<T>(ctx, &k.grad, &k.out)?;
    let mask = Reader::<u8>::bits(ctx, &k.mask, &k.out)?;
    let out = Writer::typed::<T>(ctx, &k.out)?;
    let scale = T::Compute::from_f64(k.scale);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let grad = grad.read(start, len, &mut a);
            let mask = mask.read(start, len, &mut b);
            out.write(start, len, &mut o, |out| apply_mask(grad, mask, scale, out));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of Random123's known-answer tests for philox4x32-10.
    #[test]
    fn philox_gives_the_known_answers() {
        let mut out = [0; WORDS];
        words(0, 0, &mut out);
        assert_eq!(out[..4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let second: Vec<u32> = out[4..8].to_vec();
        words(0, 1, &mut out);
        assert_eq!(out[..4], second);
    }
}
