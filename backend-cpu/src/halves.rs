//! 16-bit floats. They are computed in f32.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use crate::element::Element;
use crate::simd::Isa;
use crate::vector::Vector;

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
        widen_f16::<S::F32>(src, out);
    }
    #[inline(always)]
    fn put_all<S: Isa>(values: &[f32], out: &mut [Self]) {
        narrow_f16::<S::F32>(values, out);
    }
}

/// Has no branches, so that loops over it vectorise. Rounding adds just below half of the last place, and the last place's own bit.
#[inline(always)]
fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let nan = bits >> 16 | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
}

/// A multiplication changes the exponent's bias, which handles subnormals too.
#[inline(always)]
fn f16_to_f32(h: u16) -> f32 {
    let h = h as u32;
    let sign = (h & 0x8000) << 16;
    let shifted = (h & 0x7fff) << 13;
    let scaled = (f32::from_bits(shifted) * f32::from_bits(0x7780_0000)).to_bits();
    let magnitude = if shifted >= 0x0f80_0000 { shifted | 0x7f80_0000 } else { scaled };
    f32::from_bits(sign | magnitude)
}

/// Rounds normal results as integers, and subnormal ones by adding 0.5, whose last place is f16's least.
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

/// Converts all of `src` to f32.
#[inline(always)]
pub(crate) fn widen_f16<V: Vector<f32>>(src: &[f16], out: &mut [MaybeUninit<f32>]) {
    let n = src.len().min(out.len());
    let mut at = 0;
    while at + V::N <= n {
        // SAFETY: `N` numbers from `at` on lie in both.
        unsafe {
            let Some(widened) = V::load_f16(src.as_ptr().add(at)) else { break };
            widened.store(out.as_mut_ptr().add(at).cast());
        }
        at += V::N;
    }
    for (o, x) in out[at..n].iter_mut().zip(&src[at..n]) {
        o.write(x.get());
    }
}

/// Converts all values, rounded to nearest even.
#[inline(always)]
pub(crate) fn narrow_f16<V: Vector<f32>>(values: &[f32], out: &mut [f16]) {
    let n = values.len().min(out.len());
    let mut at = 0;
    // SAFETY: `N` numbers from `at` on lie in both.
    while at + V::N <= n && unsafe { V::load(values.as_ptr().add(at)).store_f16(out.as_mut_ptr().add(at)) } {
        at += V::N;
    }
    for (o, &x) in out[at..n].iter_mut().zip(&values[at..n]) {
        *o = f16::put(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::simd;

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

    simd! {
        fn widened(src: &[f16], out: &mut [MaybeUninit<f32>]) = widened_body;
        fn narrowed(values: &[f32], out: &mut [f16]) = narrowed_body;
    }

    #[inline(always)]
    fn widened_body<S: Isa>(src: &[f16], out: &mut [MaybeUninit<f32>]) {
        widen_f16::<S::F32>(src, out);
    }

    #[inline(always)]
    fn narrowed_body<S: Isa>(values: &[f32], out: &mut [f16]) {
        narrow_f16::<S::F32>(values, out);
    }

    #[test]
    fn half_precision_is_the_same_in_vectors_and_one_by_one() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut out = vec![MaybeUninit::new(0.0); all.len()];
        widened(&all, &mut out);
        // SAFETY: initialised above.
        let wide: Vec<f32> = out.iter().map(|x| unsafe { x.assume_init() }).collect();
        assert!(wide.iter().zip(&all).all(|(&w, h)| w == h.get() || (w.is_nan() && h.is_nan())));
        // Each value, the middle between it and the next value, and the numbers beside both.
        let finite = all.windows(2).filter(|pair| pair[0].is_finite() && pair[1].is_finite());
        let values: Vec<f32> = finite
            .flat_map(|pair| [pair[0].get(), (pair[0].get() + pair[1].get()) / 2.0])
            .flat_map(|x| [x, f32::from_bits(x.to_bits() + 1), f32::from_bits(x.to_bits().max(1) - 1)])
            .chain([65519.0, 65520.0, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-30])
            .collect();
        let mut halves = vec![f16::ZERO; values.len()];
        narrowed(&values, &mut halves);
        for (&x, &h) in values.iter().zip(&halves) {
            assert!(h.to_bits() == f16::put(x).to_bits() || (x.is_nan() && h.is_nan()), "{x}");
        }
    }
}
