//! The allowed distance of a result from the reference, with its reason.

use memcore::DType;

use crate::reference::{rounded, spacing};

/// The distance from the reference that a case allows.
///
/// 16-bit floats are computed in f32 and rounded once. They are compared with the reference's result before rounding:
/// their arithmetic is held to f32's bounds, and rounding to nearest adds half a unit in the last place. Truncation
/// does not pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative error, in epsilons of the compute type.
    relative: f64,
    /// Absolute error, in epsilons of the compute type.
    absolute: f64,
    /// Absolute error of 16-bit results, in epsilons of their own type.
    half_absolute: f64,
    /// Allowed difference of an integer.
    steps: i64,
    exact: bool,
    /// The reason for this tolerance.
    pub reason: &'static str,
}

impl Tolerance {
    /// The exact value: for elements that are moved, selected or compared, or that have one correct rounding.
    pub const fn exact(reason: &'static str) -> Self {
        Self { relative: 0.0, absolute: 0.0, half_absolute: 0.0, steps: 0, exact: true, reason }
    }

    /// A few elementary operations on numbers up to `magnitude`. 4 ε relative, because GPUs divide to 2.5 ulp; 4 ε of
    /// the magnitude absolute, because a difference keeps the error of its operands.
    pub const fn arithmetic(magnitude: f64, reason: &'static str) -> Self {
        Self { relative: 4.0, absolute: 4.0 * magnitude, half_absolute: 0.0, steps: 0, exact: false, reason }
    }

    /// Functions beyond arithmetic with results around `magnitude`: 32 ε, because WGSL allows `3 + 2·|x|` ulp for
    /// `exp`, and for `pow` the error of `exp2(y·log2 x)`.
    pub const fn function(magnitude: f64, reason: &'static str) -> Self {
        Self { relative: 32.0, absolute: 32.0 * magnitude, half_absolute: 0.0, steps: 0, exact: false, reason }
    }

    /// A sum of `terms` products or values up to `magnitude`, in any order. Rounding errors of partial sums grow as
    /// `√terms·magnitude`, and `terms` of them add up as `√terms` does; hence `terms·magnitude·ε`, some five standard
    /// deviations.
    pub const fn sum(terms: usize, magnitude: f64, reason: &'static str) -> Self {
        let terms = if terms < 8 { 8.0 } else { terms as f64 };
        Self { relative: 8.0, absolute: terms * magnitude, half_absolute: 0.0, steps: 0, exact: false, reason }
    }

    /// Also allows 16-bit results to be off by `steps` of their own epsilon times `magnitude`.
    #[must_use]
    pub const fn half_intermediates(mut self, steps: f64, magnitude: f64) -> Self {
        self.half_absolute = steps * magnitude;
        self
    }

    /// Also allows integer results to be off by `steps`.
    #[must_use]
    pub const fn integer_steps(mut self, steps: i64) -> Self {
        self.steps = steps;
        self
    }

    /// True if `got` passes for `want` as an element of type `dtype`; for a 16-bit float, `want` is not rounded yet.
    /// NaN passes only for NaN, an infinity only for itself.
    pub(crate) fn accepts(&self, dtype: DType, want: f64, got: f64) -> bool {
        if want.is_nan() || got.is_nan() {
            return want.is_nan() && got.is_nan();
        }
        let nearest = if dtype.is_half() { rounded(dtype, want) } else { want };
        got == nearest || (nearest.is_finite() && (got - want).abs() <= self.allowed(dtype, want))
    }

    /// The largest distance from `want` that passes.
    pub(crate) fn allowed(&self, dtype: DType, want: f64) -> f64 {
        if !dtype.is_float() {
            return self.steps as f64;
        }
        if self.exact {
            return 0.0;
        }
        let compute = epsilon(dtype.accumulator());
        let arithmetic = compute * (self.relative * want.abs() + self.absolute);
        if !dtype.is_half() {
            return arithmetic;
        }
        arithmetic + spacing(dtype, want) / 2.0 + epsilon(dtype) * self.half_absolute
    }
}

/// The distance from 1 to the next number.
pub(crate) fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON.into(),
        DType::F16 => half::f16::EPSILON.into(),
        DType::BF16 => half::bf16::EPSILON.into(),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_means_exact() {
        let t = Tolerance::exact("test");
        assert!(t.accepts(DType::F16, 1.0, 1.0) && !t.accepts(DType::F16, 1.0, 1.0 + 2f64.powi(-10)));
        assert!(t.accepts(DType::F32, f64::NAN, f64::NAN) && !t.accepts(DType::F32, 1.0, f64::NAN));
        assert!(!t.accepts(DType::I8, 3.0, 4.0) && t.integer_steps(1).accepts(DType::I8, 3.0, 4.0));
    }

    #[test]
    fn halves_may_be_half_a_unit_off_and_no_more() {
        let t = Tolerance::arithmetic(1.0, "test");
        let ulp = 2f64.powi(-10);
        // A value that f16 represents exactly: its neighbours are wrong.
        assert!(t.accepts(DType::F16, 1.0, 1.0) && !t.accepts(DType::F16, 1.0, 1.0 + ulp));
        // Near a tie both neighbours pass; away from it only the nearer one.
        for near_tie in [0.5, 0.5 - 1e-4, 0.5 + 1e-4] {
            assert!(t.accepts(DType::F16, 1.0 + near_tie * ulp, 1.0));
            assert!(t.accepts(DType::F16, 1.0 + near_tie * ulp, 1.0 + ulp));
        }
        assert!(!t.accepts(DType::F16, 1.0 + 0.6 * ulp, 1.0) && t.accepts(DType::F16, 1.0 + 0.6 * ulp, 1.0 + ulp));
        // Subnormal numbers are 2⁻²⁴ apart.
        let tiny = Tolerance::arithmetic(0.0, "test");
        assert!(
            tiny.accepts(DType::F16, 0.4 * 2f64.powi(-24), 0.0) && !tiny.accepts(DType::F16, 0.6 * 2f64.powi(-24), 0.0)
        );
    }

    #[test]
    fn halves_overflow_where_rounding_does() {
        let t = Tolerance::arithmetic(1.0, "test");
        assert!(t.accepts(DType::F16, 65519.0, 65504.0) && !t.accepts(DType::F16, 65519.0, f64::INFINITY));
        assert!(t.accepts(DType::F16, 65521.0, f64::INFINITY) && !t.accepts(DType::F16, 65521.0, 65504.0));
        assert!(t.accepts(DType::F16, 1e30, f64::INFINITY));
    }

    #[test]
    fn floats_have_their_limits() {
        let t = Tolerance::arithmetic(1.0, "test");
        assert!(!t.accepts(DType::F32, 1.0, 1.0 + 1e-5));
        assert!(!t.accepts(DType::F32, f64::INFINITY, 1e38) && !t.accepts(DType::F32, 1e38, f64::INFINITY));
    }
}
