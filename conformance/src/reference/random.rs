//! Philox words, uniforms and dropout. Uniforms use exactly the arithmetic of the contract, because they have the same
//! bits on every backend.

use memcore::backend::kernel::{Dropout, DropoutGrad, Random, RandomKind};
use memcore::{DType, Result};

use super::{Memory, Number};

/// Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
pub(crate) fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let (mut key, mut c) = (key, counter);
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let (a, b) = (u64::from(c[0]) * u64::from(MULTIPLIERS[0]), u64::from(c[2]) * u64::from(MULTIPLIERS[1]));
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
    }
    c
}

/// The word of element `i`.
fn word(seed: u64, offset: u64, i: usize) -> u32 {
    let counter = offset.wrapping_add(i as u64 / 4);
    philox([seed as u32, (seed >> 32) as u32], [counter as u32, (counter >> 32) as u32, 0, 0])[i % 4]
}

/// `(w >> 8)·2⁻²⁴`, exact in f32.
fn uniform(word: u32) -> f32 {
    (word >> 8) as f32 * 2f32.powi(-24)
}

pub(super) fn random(m: &mut Memory, k: &Random) -> Result<()> {
    let values = (0..k.out.numel()).map(|i| {
        let w = word(k.seed, k.offset, i);
        match k.kind {
            RandomKind::Words => Number::I((w as i32).into()),
            RandomKind::Uniform { low, high } if k.out.dtype == DType::F64 => {
                Number::F(low + (high - low) * f64::from(uniform(w)))
            }
            RandomKind::Uniform { low, high } => {
                let (low, high) = (low as f32, high as f32);
                Number::F((low + (high - low) * uniform(w)).into())
            }
        }
    });
    m.write_numbers(&k.out, values)
}

pub(super) fn dropout(m: &mut Memory, k: &Dropout) -> Result<()> {
    let x = m.floats(&k.x)?;
    let kept: Vec<bool> = (0..x.len()).map(|i| k.p < 1.0 && uniform(word(k.seed, k.offset, i)) >= k.p as f32).collect();
    let out: Vec<f64> = x.iter().zip(&kept).map(|(x, &kept)| if kept { x / (1.0 - k.p) } else { 0.0 }).collect();
    m.write_numbers(&k.mask, kept.iter().map(|&kept| Number::I(kept.into())))?;
    m.write(&k.out, &out)
}

pub(super) fn dropout_grad(m: &mut Memory, k: &DropoutGrad) -> Result<()> {
    let (grad, mask) = (m.floats(&k.grad)?, m.ints(&k.mask)?);
    let out: Vec<f64> = grad.iter().zip(&mask).map(|(g, &kept)| if kept != 0 { k.scale * g } else { 0.0 }).collect();
    m.write(&k.out, &out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    /// The vectors of Random123's known-answer tests for philox4x32-10.
    #[test]
    fn philox_gives_the_known_answers() {
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn words_come_in_counter_order() {
        let b = Bench::new();
        let out = b.fresh(DType::I32, &[5]);
        b.run(Random { kind: RandomKind::Words, seed: 0, offset: 0, out });
        let words = [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8, philox([0; 2], [1, 0, 0, 0])[0]];
        b.expect(&out, &words.map(|w| f64::from(w as i32)));
        // The last element of one launch equals the first of a launch at the following counter.
        let next = b.fresh(DType::I32, &[1]);
        b.run(Random { kind: RandomKind::Words, seed: 0, offset: 1, out: next });
        assert_eq!(b.get(&next)[0], b.get(&out)[4]);
    }

    #[test]
    fn uniforms_are_the_words_upper_bits() {
        let b = Bench::new();
        let out = b.fresh(DType::F32, &[1]);
        b.run(Random { kind: RandomKind::Uniform { low: 0.0, high: 1.0 }, seed: 0, offset: 0, out });
        assert_eq!(b.get(&out), [f64::from(0x0066_27e8) / f64::from(1 << 24)]);
        b.run(Random { kind: RandomKind::Uniform { low: -1.0, high: 1.0 }, seed: 0, offset: 0, out });
        b.expect(&out, &[2.0 * f64::from(0x0066_27e8) / f64::from(1 << 24) - 1.0]);
    }

    #[test]
    fn dropout_keeps_where_the_uniform_reaches_p() {
        let b = Bench::new();
        let x = b.f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
        let (mask, out) = (b.fresh(DType::Bool, &[4]), b.fresh(DType::F32, &[4]));
        // The first four uniforms of seed 0 are 0.399, 0.881, 0.736, 0.605.
        b.run(Dropout { p: 0.7, seed: 0, offset: 0, x, mask, out });
        b.expect(&mask, &[0.0, 1.0, 1.0, 0.0]);
        b.expect(&out, &[0.0, 2.0 / 0.3, 10.0, 0.0]);
        let grad = b.fresh(DType::F32, &[4]);
        b.run(DropoutGrad { scale: 2.0, grad: x, mask, out: grad });
        b.expect(&grad, &[0.0, 4.0, 6.0, 0.0]);
        b.run(Dropout { p: 1.0, seed: 0, offset: 0, x, mask, out });
        b.expect(&out, &[0.0; 4]);
    }
}
