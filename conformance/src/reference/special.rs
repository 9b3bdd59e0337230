//! The error function, to the precision of f64.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `erf(x)`: the series `2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!` (Abramowitz & Stegun 7.1.6), whose terms all have
/// the same sign.
pub(crate) fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 || x.is_nan() {
        return if x.is_nan() { x } else { x.signum() };
    }
    if x.abs() > 3.0 {
        return x.signum() * (1.0 - erfc_tail(x.abs()));
    }
    let (mut term, mut sum, mut n) = (x, 0.0, 0.0);
    while term.abs() > 1e-18 * f64::abs(sum) {
        sum += term;
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

/// `erfc(x)` for x above about 2: the continued fraction `e^(−x²)/√π · 1/(x + ½/(x + 1/(x + 3⁄2/(x + …))))` (Abramowitz
/// & Stegun 7.1.14), evaluated from its end.
fn erfc_tail(x: f64) -> f64 {
    let mut fraction = x;
    for n in (1..=200).rev() {
        fraction = x + 0.5 * f64::from(n) / fraction;
    }
    (-x * x).exp() / PI.sqrt() / fraction
}

/// The standard normal distribution `Φ(x) = erfc(−x/√2)/2`; its lower tail has full relative precision.
pub(crate) fn normal_cdf(x: f64) -> f64 {
    let t = x * FRAC_1_SQRT_2;
    if t < -2.5 { 0.5 * erfc_tail(-t) } else { 0.5 * (1.0 + erf(t)) }
}

/// The standard normal density `φ(x)`.
pub(crate) fn normal_pdf(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_function_has_its_tabulated_values() {
        // Abramowitz & Stegun, table 7.1, and DLMF 7.
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.5, 0.999_999_256_901_627_7),
        ] {
            assert!((erf(x) - want).abs() < 1e-15, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(f64::INFINITY), 1.0);
    }

    #[test]
    fn normal_distribution_has_its_tabulated_values() {
        assert!((normal_cdf(1.0) - 0.841_344_746_068_542_9).abs() < 1e-15);
        assert!((normal_cdf(-5.0) / 2.866_515_718_791_939e-7 - 1.0).abs() < 1e-12);
        assert!((normal_pdf(0.0) - 0.398_942_280_401_432_7).abs() < 1e-15);
    }
}
