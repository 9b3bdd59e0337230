//! Further functions of one element, whose values are computed on the host: tangents, the error function, logarithms, thresholds, rounding.
//!
//! Each saves what PyTorch's saves. The gradient's temporaries are made in PyTorch's order, and freed in reverse when the formula is done.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::on_host;

/// What a gradient is computed from.
#[derive(Clone, Copy, PartialEq)]
enum From {
    Input,
    Result,
    /// The result; PyTorch keeps the input, too.
    ResultBesideInput,
    /// No value: the gradient is zero.
    Nothing,
}

/// A function with its gradient.
#[derive(Clone, Copy)]
struct Curve {
    op: &'static str,
    node: &'static str,
    from: From,
    /// The operators that make temporaries of the input's size in the gradient, and the one that makes the gradient.
    temporaries: &'static [&'static str],
    gradient: &'static str,
    /// True if autocast computes it in float32.
    in_full: bool,
}

impl Curve {
    const fn new(
        [op, node]: [&'static str; 2],
        from: From,
        temporaries: &'static [&'static str],
        gradient: &'static str,
    ) -> Self {
        Self { op, node, from, temporaries, gradient, in_full: false }
    }

    const fn in_full(self) -> Self {
        Self { in_full: true, ..self }
    }
}

/// Applies a curve. `slope` is the derivative, from what the curve saves.
fn applied(
    x: &Tensor,
    curve: Curve,
    value: impl Fn(f64) -> f64,
    slope: impl Fn(f64) -> f64 + Send + Sync + 'static,
) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return Err(Error::invalid(curve.op, format!("not defined for {}", x.dtype())));
    }
    let _op = context::op(curve.op);
    let x = &if curve.in_full { full(x)? } else { x.clone() };
    let y = Array::empty_for(x.device(), x.dims(), &[x.array().layout()], x.dtype())?;
    on_host::fill(&y, &[x.array()], |values| Ok(values[0].iter().map(|&x| value(x)).collect()))?;
    record(y.clone(), &[x], |saved| {
        match curve.from {
            From::Input => saved.save("self", x.array())?,
            From::Result => saved.save("result", &y)?,
            From::ResultBesideInput => {
                saved.save("result", &y)?;
                saved.save("exponent", x.array())?;
            }
            From::Nothing => {}
        }
        Ok(Box::new(CurveBackward { curve, slope: Box::new(slope) }))
    })
}

struct CurveBackward {
    curve: Curve,
    slope: Box<dyn Fn(f64) -> f64 + Send + Sync>,
}

impl Function for CurveBackward {
    fn name(&self) -> &'static str {
        self.curve.node
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        if self.curve.from == From::Nothing {
            return Ok(smallvec![Some(context::within("zeros_like", || grad.zeros_like())?)]);
        }
        let value = saved.get(0)?;
        let like = |op| {
            context::within(op, || Array::empty_for(value.device(), value.dims(), &[value.layout()], value.dtype()))
        };
        let mut temporaries = Vec::new();
        if value.device().profile().torch_temporaries {
            for op in self.curve.temporaries {
                temporaries.push(like(op)?);
            }
        }
        let out = like(self.curve.gradient)?;
        on_host::fill(&out, &[&value, grad], |values| {
            Ok(values[0].iter().zip(&values[1]).map(|(&value, grad)| grad * (self.slope)(value)).collect())
        })?;
        while temporaries.pop().is_some() {}
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// `tan x`. Saves its result.
pub fn tan(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["tan", "TanBackward0"], From::Result, &["pow", "add"], "mul").in_full();
    applied(x, curve, f64::tan, |y| 1.0 + y * y)
}

/// `arctan x`. Saves its input.
pub fn atan(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["atan", "AtanBackward0"], From::Input, &["mul", "add"], "div");
    applied(x, curve, f64::atan, |x| 1.0 / (1.0 + x * x))
}

/// `sinh x`. Saves its input.
pub fn sinh(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["sinh", "SinhBackward0"], From::Input, &["cosh"], "mul").in_full();
    applied(x, curve, f64::sinh, f64::cosh)
}

/// `cosh x`. Saves its input.
pub fn cosh(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["cosh", "CoshBackward0"], From::Input, &["sinh"], "mul").in_full();
    applied(x, curve, f64::cosh, f64::sinh)
}

/// `ln(1 + x)`. Saves its input.
pub fn log1p(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["log1p", "Log1PBackward0"], From::Input, &["add"], "div").in_full();
    applied(x, curve, f64::ln_1p, |x| 1.0 / (1.0 + x))
}

/// `eˣ − 1`. Saves its result.
pub fn expm1(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["expm1", "Expm1Backward0"], From::Result, &["add"], "mul").in_full();
    applied(x, curve, f64::exp_m1, |y| y + 1.0)
}

/// The logarithm to base 2. Saves its input.
pub fn log2(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["log2", "Log2Backward0"], From::Input, &["mul"], "div").in_full();
    applied(x, curve, f64::log2, |x| 1.0 / (x * std::f64::consts::LN_2))
}

/// The logarithm to base 10. Saves its input.
pub fn log10(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["log10", "Log10Backward0"], From::Input, &["mul"], "div").in_full();
    applied(x, curve, f64::log10, |x| 1.0 / (x * std::f64::consts::LN_10))
}

/// `baseˣ` for a number above 0. Saves its result and its input. PyTorch makes a number of f64 on the device of any base but 1, and frees it at once.
pub fn power_of(base: f64, x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["pow", "PowBackward2"], From::ResultBesideInput, &["mul"], "mul").in_full();
    let y = applied(x, curve, move |x| base.powf(x), move |y| y * base.ln())?;
    if base != 1.0 && x.device().profile().torch_temporaries {
        let _op = context::op("pow");
        Array::empty(x.device(), &[], DType::F64)?;
    }
    Ok(y)
}

/// `arcsin x`. Saves its input.
pub fn asin(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["asin", "AsinBackward0"], From::Input, &["neg", "mul", "add", "rsqrt"], "mul").in_full();
    applied(x, curve, f64::asin, |x| 1.0 / (1.0 - x * x).sqrt())
}

/// `arccos x`. Saves its input.
pub fn acos(x: &Tensor) -> Result<Tensor> {
    let temporaries = &["neg", "mul", "add", "rsqrt", "neg"];
    let curve = Curve::new(["acos", "AcosBackward0"], From::Input, temporaries, "mul").in_full();
    applied(x, curve, f64::acos, |x| -1.0 / (1.0 - x * x).sqrt())
}

/// The inverse of `sinh`. Saves its input.
pub fn asinh(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["asinh", "AsinhBackward0"], From::Input, &["pow", "add", "rsqrt"], "mul");
    applied(x, curve, f64::asinh, |x| 1.0 / (x * x + 1.0).sqrt())
}

/// The inverse of `cosh`, from 1 on. Saves its input.
pub fn acosh(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["acosh", "AcoshBackward0"], From::Input, &["pow", "sub", "rsqrt"], "mul");
    applied(x, curve, f64::acosh, |x| 1.0 / (x * x - 1.0).sqrt())
}

/// The inverse of `tanh`. Saves its input.
pub fn atanh(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["atanh", "AtanhBackward0"], From::Input, &["pow", "rsub", "reciprocal"], "mul");
    applied(x, curve, f64::atanh, |x| 1.0 / (1.0 - x * x))
}

/// `ln(x / (1 − x))`. Saves its input.
pub fn logit(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["logit", "LogitBackward0"], From::Input, &[], "logit_backward");
    applied(x, curve, |x| (x / (1.0 - x)).ln(), |x| 1.0 / (x * (1.0 - x)))
}

/// The error function. Saves its input.
pub fn erf(x: &Tensor) -> Result<Tensor> {
    let curve = Curve::new(["erf", "ErfBackward0"], From::Input, &["pow", "neg", "exp", "mul"], "mul");
    applied(x, curve, error_function, |x| std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp())
}

/// Computes the error function by its series (Abramowitz & Stegun 7.1.6), whose terms all have the same sign.
fn error_function(x: f64) -> f64 {
    // Beyond, it is 1 to the precision of f64.
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum, mut n) = (x, 0.0, 0.0);
    while term.abs() > 1e-18 * f64::abs(sum) {
        sum += term;
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `x` above `threshold`, else `value`. Saves its input.
pub fn threshold(x: &Tensor, threshold: f64, value: f64) -> Result<Tensor> {
    let curve = Curve::new(["threshold", "ThresholdBackward0"], From::Input, &[], "threshold_backward");
    let above = move |x: f64| x > threshold;
    applied(x, curve, move |x| if above(x) { x } else { value }, move |x| f64::from(u8::from(above(x))))
}

/// 0 between `−bound` and `bound`, else `x`. Saves its input.
pub fn hardshrink(x: &Tensor, bound: f64) -> Result<Tensor> {
    let curve = Curve::new(["hardshrink", "HardshrinkBackward0"], From::Input, &[], "hardshrink_backward");
    let kept = move |x: f64| x.abs() > bound;
    applied(x, curve, move |x| if kept(x) { x } else { 0.0 }, move |x| f64::from(u8::from(kept(x))))
}

/// 0 between `−bound` and `bound`, else `x` moved towards 0 by `bound`. Saves its input.
pub fn softshrink(x: &Tensor, bound: f64) -> Result<Tensor> {
    let curve = Curve::new(["softshrink", "SoftshrinkBackward0"], From::Input, &[], "softshrink_backward");
    let kept = move |x: f64| x.abs() > bound;
    let value = move |x: f64| if kept(x) { x - bound.copysign(x) } else { 0.0 };
    applied(x, curve, value, move |x| f64::from(u8::from(kept(x))))
}

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident => $node:literal, $value:expr;)*) => {
        $($(#[$doc])*
        /// Saves nothing; its gradient is zero.
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            applied(x, Curve::new([stringify!($name), $node], From::Nothing, &[], ""), $value, |_| 0.0)
        })*
    };
}

steps! {
    /// The next whole number below.
    floor => "FloorBackward0", f64::floor;
    /// The next whole number above.
    ceil => "CeilBackward0", f64::ceil;
    /// The nearest whole number; of two, the even one.
    round => "RoundBackward0", f64::round_ties_even;
    /// The whole number towards 0.
    trunc => "TruncBackward0", f64::trunc;
    /// −1, 0 or 1.
    sign => "SignBackward0", |x| if x == 0.0 || x.is_nan() { x } else { x.signum() };
}
