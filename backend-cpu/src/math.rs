//! Elementary functions. In f32 they are polynomials without branches, so that loops over them vectorise. In f64 they are those of the
//! standard library, or of `libm`.
//!
//! Polynomials are minimax fits (Remez) of the relative error; its bound is given beside each. The reductions of the arguments are the
//! classical ones (W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980).

// Coefficients have all digits of their fit. The last digits are rounded away.
#![allow(clippy::excessive_precision)]

use crate::element::Real;
use crate::simd::Isa;

/// `c[0] + c[1]·x + …`, by Horner's rule.
#[inline(always)]
fn horner<S: Isa, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        y = S::fma32(y, x, c[i]);
    }
    y
}

/// Adding and subtracting 1.5·2²³ rounds to the nearest integer, which is then in the low bits of the sum.
const ROUND: f32 = 12582912.0;

/// Returns `eʳ` and `n` with `x = n·ln 2 + r`: `eʳ = 1 + r + r²·P(r)`, P's error 3.1e-9.
#[inline(always)]
fn exp_parts<S: Isa>(x: f32) -> (f32, i32) {
    let shifted = S::fma32(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = S::fma32(n, -LN2_HIGH, x);
    let r = S::fma32(n, -LN2_LOW, r);
    let p = horner::<S, 5>(r, [0.499_999_94, 0.166_665_2, 0.041_668_393, 0.008_368_78, 0.001_381_446_3]);
    (S::fma32(r * r, p, r) + 1.0, (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32))
}

/// `eˣ` to 1 or 2 ulp. Overflows to ∞ and underflows gradually.
#[inline(always)]
pub(crate) fn exp_f32<S: Isa>(x: f32) -> f32 {
    // These comparisons let NaN through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (y, n) = exp_parts::<S>(x);
    // 2ⁿ in two factors, because n reaches 128 and −150, beyond a float's exponents.
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// The least x whose exponential is a normal number.
const MIN_NORMAL: f32 = -87.336_54;

/// [`exp_f32`] for `x ≤ 0`, without subnormal results: n fits one factor.
#[inline(always)]
pub(crate) fn exp_nonpositive_f32<S: Isa>(x: f32) -> f32 {
    let (y, n) = exp_parts::<S>(if x < MIN_NORMAL { MIN_NORMAL } else { x });
    let y = y * power_of_two(n);
    if x < MIN_NORMAL { 0.0 } else { y }
}

/// Upper bits of ln 2, so that small multiples are exact.
const LN2_HIGH: f32 = 0.693_359_4;
/// ln 2 − [`LN2_HIGH`].
const LN2_LOW: f32 = -2.121_944_4e-4;

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `ln x` to about 1 ulp: `x = 2ᵉ·(1 + f)` with `√½ ≤ 1 + f < √2`, `ln(1 + f) = f − f²/2 + f³·P(f)` with P's error 7.5e-10.
#[inline(always)]
pub(crate) fn ln_f32<S: Isa>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // Exponents are counted from √½.
    let e = bits.wrapping_sub(0x3f35_04f3) >> 23;
    let m = f32::from_bits(bits.wrapping_sub(e << 23) as u32);
    let e = e as f32 - if subnormal { 23.0 } else { 0.0 };
    let f = m - 1.0;
    let p = horner::<S, 9>(
        f,
        [
            0.333_333_13,
            -0.250_000_1,
            0.200_021_19,
            -0.166_679_96,
            0.142_195_54,
            -0.124_055_9,
            0.118_881_45,
            -0.116_756_4,
            0.067_466_63,
        ],
    );
    let square = f * f;
    let tail = S::fma32(f * square, p, S::fma32(e, LN2_LOW, -0.5 * square));
    let y = S::fma32(e, LN2_HIGH, f + tail);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// `tanh x` to 2 ulp: `x + x³·P(x²)` below 0.625 (error 4.4e-9), else from `e⁻²ˣ`.
#[inline(always)]
pub(crate) fn tanh_f32<S: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let y = x * x;
    let p = horner::<S, 5>(y, [-0.333_332_83, 0.133_314_42, -0.053_739_71, 0.020_639_077, -0.005_704_977_7]);
    let small = S::fma32(x * y, p, x);
    let e = exp_nonpositive_f32::<S>(-2.0 * a);
    let large = (1.0 - e) / (1.0 + e);
    if a < 0.625 { small } else { large.copysign(x) }
}

/// Φ(x) and φ(x) from one exponential: with `a = |x|/√2`, `Φ(−|x|) = e^(−a²)·t·P(t)/2` and `t = 1/(1 + p·a)`, the form of Abramowitz
/// and Stegun 7.1.26 with eight terms instead of five: relative error 5.7e-8 for `a ≤ 7`, in both tails.
#[inline(always)]
pub(crate) fn normal_f32<S: Isa>(x: f32) -> (f32, f32) {
    const INV_SQRT_TAU: f32 = 0.398_942_3;
    let t = 1.0 / S::fma32(x.abs(), 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2, 1.0);
    let p = horner::<S, 8>(
        t,
        [0.185_108_54, 0.179_958_1, 0.210_324_95, 0.011_746_667, 0.477_750_24, -0.431_419_43, 0.511_003_8, -0.144_473],
    );
    let e = exp_nonpositive_f32::<S>(-0.5 * x * x);
    let tail = 0.5 * e * (t * p);
    (if x > 0.0 { 1.0 - tail } else { tail }, INV_SQRT_TAU * e)
}

impl Real for f32 {
    type Vector<S: Isa> = S::F32;
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn fma<S: Isa>(self, b: Self, c: Self) -> Self {
        S::fma32(self, b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn exp<S: Isa>(self) -> Self {
        exp_f32::<S>(self)
    }
    #[inline(always)]
    fn exp_nonpositive<S: Isa>(self) -> Self {
        exp_nonpositive_f32::<S>(self)
    }
    #[inline(always)]
    fn ln<S: Isa>(self) -> Self {
        ln_f32::<S>(self)
    }
    #[inline(always)]
    fn tanh<S: Isa>(self) -> Self {
        tanh_f32::<S>(self)
    }
    #[inline(always)]
    fn normal<S: Isa>(self) -> (Self, Self) {
        normal_f32::<S>(self)
    }
    #[inline(always)]
    fn sin(self) -> Self {
        f32::sin(self)
    }
    #[inline(always)]
    fn cos(self) -> Self {
        f32::cos(self)
    }
    #[inline(always)]
    fn pow(self, y: Self) -> Self {
        f32::powf(self, y)
    }
}

impl Real for f64 {
    type Vector<S: Isa> = S::F64;
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn fma<S: Isa>(self, b: Self, c: Self) -> Self {
        S::fma64(self, b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn exp<S: Isa>(self) -> Self {
        f64::exp(self)
    }
    #[inline(always)]
    fn ln<S: Isa>(self) -> Self {
        f64::ln(self)
    }
    #[inline(always)]
    fn tanh<S: Isa>(self) -> Self {
        f64::tanh(self)
    }
    #[inline(always)]
    fn normal<S: Isa>(self) -> (Self, Self) {
        let density = (-0.5 * self * self).exp() / (2.0 * std::f64::consts::PI).sqrt();
        (0.5 * libm::erfc(-self * std::f64::consts::FRAC_1_SQRT_2), density)
    }
    #[inline(always)]
    fn sin(self) -> Self {
        f64::sin(self)
    }
    #[inline(always)]
    fn cos(self) -> Self {
        f64::cos(self)
    }
    #[inline(always)]
    fn pow(self, y: Self) -> Self {
        f64::powf(self, y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Fused, Separate};

    /// Returns the largest error of `f` in units of the last place of `want`, over a fine grid of floats.
    fn worst_ulps(low: f32, high: f32, f: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> f64 {
        let mut worst = 0.0f64;
        for i in 0..200_000 {
            let x = low + (high - low) * (i as f32 / 200_000.0);
            let (y, w) = (f(x), want(x as f64));
            let ulp = (w.abs() as f32).max(f32::MIN_POSITIVE);
            let ulp = (f32::from_bits(ulp.to_bits() + 1) - ulp) as f64;
            worst = worst.max((y as f64 - w).abs() / ulp);
        }
        worst
    }

    fn phi(x: f64) -> f64 {
        0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    }

    #[test]
    fn functions_are_within_a_few_ulps() {
        let cases: [(&str, f64, f64); 9] = [
            ("exp, not positive", worst_ulps(-87.3, 0.0, exp_nonpositive_f32::<Fused>, f64::exp), 2.0),
            ("exp", worst_ulps(-87.0, 88.7, exp_f32::<Fused>, f64::exp), 2.0),
            ("exp, separate", worst_ulps(-87.0, 88.7, exp_f32::<Separate>, f64::exp), 3.0),
            ("exp near 0", worst_ulps(-0.5, 0.5, exp_f32::<Fused>, f64::exp), 1.5),
            ("ln", worst_ulps(1e-3, 50.0, ln_f32::<Fused>, f64::ln), 2.0),
            ("ln near 1", worst_ulps(0.9, 1.1, ln_f32::<Fused>, f64::ln), 2.0),
            ("tanh", worst_ulps(-10.0, 10.0, tanh_f32::<Fused>, f64::tanh), 2.5),
            ("Φ", worst_ulps(-2.0, 5.0, |x| normal_f32::<Fused>(x).0, phi), 8.0),
            // Squaring x in the exponent loses x²/2 ulps in the far tail.
            ("Φ, tail", worst_ulps(-9.0, -2.0, |x| normal_f32::<Fused>(x).0, phi), 60.0),
        ];
        for (name, worst, bound) in cases {
            println!("{name}: {worst:.2} ulps");
            assert!(worst <= bound, "{name}: {worst} ulps");
        }
    }

    #[test]
    fn exp_and_ln_at_the_edges() {
        assert_eq!(exp_f32::<Fused>(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp_f32::<Fused>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32::<Fused>(-200.0), 0.0);
        assert_eq!(exp_f32::<Fused>(89.0), f32::INFINITY);
        assert!(exp_f32::<Fused>(f32::NAN).is_nan());
        assert_eq!(exp_f32::<Fused>(0.0), 1.0);
        let subnormal = exp_f32::<Fused>(-95.0) as f64;
        assert!((subnormal - (-95f64).exp()).abs() < 2e-45, "{subnormal}");
        assert_eq!(exp_nonpositive_f32::<Fused>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_nonpositive_f32::<Fused>(0.0), 1.0);
        assert_eq!(exp_nonpositive_f32::<Fused>(-87.5), 0.0);
        assert!(exp_nonpositive_f32::<Fused>(f32::NAN).is_nan());
        assert_eq!(ln_f32::<Fused>(0.0), f32::NEG_INFINITY);
        assert_eq!(ln_f32::<Fused>(f32::INFINITY), f32::INFINITY);
        assert_eq!(ln_f32::<Fused>(1.0), 0.0);
        assert!(ln_f32::<Fused>(-1.0).is_nan() && ln_f32::<Fused>(f32::NAN).is_nan());
        assert!((ln_f32::<Fused>(1e-42) as f64 - (1e-42f32 as f64).ln()).abs() < 1e-5);
        assert_eq!(tanh_f32::<Fused>(100.0), 1.0);
        assert_eq!(tanh_f32::<Fused>(f32::NEG_INFINITY), -1.0);
        assert!(tanh_f32::<Fused>(f32::NAN).is_nan());
        assert_eq!(normal_f32::<Fused>(f32::INFINITY), (1.0, 0.0));
        assert_eq!(normal_f32::<Fused>(f32::NEG_INFINITY), (0.0, 0.0));
        assert!(normal_f32::<Fused>(f32::NAN).0.is_nan());
    }
}
