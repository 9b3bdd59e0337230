//! Functions of one element: elementary functions, powers, bounds, and arithmetic with a number.
//!
//! Each function saves what PyTorch's saves (`derivatives.yaml`): its *result* if the gradient is a formula of the result, else its *input*;
//! nothing if the gradient does not depend on values. The temporaries of a gradient are made in PyTorch's order, which is C++'s: the right
//! factor of a product first. When a formula is done, its temporaries are freed in reverse order.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full;

/// Functions of this file that save one value; each has its own gradient.
#[derive(Clone, Copy)]
enum Rule {
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Sin,
    Cos,
    Abs,
    Pow { exponent: f64 },
    Clamp { min: f64, max: f64 },
}

impl Rule {
    /// True if the gradient is computed from the result instead of the input.
    fn saves_result(self) -> bool {
        matches!(self, Rule::Exp | Rule::Sqrt | Rule::Rsqrt | Rule::Reciprocal)
    }

    /// Computes the gradient of the input from the saved value `v` and the gradient of the result.
    fn gradient(self, v: &Array, grad: &Array) -> Result<Array> {
        let mul = |a: &Array, b: &Array| context::within("mul", || a.mul(b));
        let unary = |name, x: &Array, op| context::within(name, || x.unary(op));
        match self {
            Rule::Exp => mul(grad, v),
            Rule::Log => context::within("div", || grad.binary(BinaryOp::Div, v)),
            Rule::Sqrt => {
                let twice = context::within("mul", || v.affine(2.0, 0.0))?;
                context::within("div", || grad.binary(BinaryOp::Div, &twice))
            }
            Rule::Rsqrt => {
                let cubed = unary("pow", v, UnaryOp::Pow { exponent: 3.0 })?;
                let scaled = context::within("mul", || grad.affine(-0.5, 0.0))?;
                mul(&scaled, &cubed)
            }
            Rule::Reciprocal => {
                let squared = mul(v, v)?;
                let negated = unary("neg", grad, UnaryOp::Neg)?;
                mul(&negated, &squared)
            }
            Rule::Sin => mul(grad, &unary("cos", v, UnaryOp::Cos)?),
            Rule::Cos => {
                let sine = unary("sin", v, UnaryOp::Sin)?;
                mul(grad, &unary("neg", &sine, UnaryOp::Neg)?)
            }
            Rule::Abs => mul(grad, &unary("sgn", v, UnaryOp::Sign)?),
            Rule::Pow { exponent } => pow_gradient(exponent, v, grad),
            Rule::Clamp { min, max } => clamp_gradient(min, max, v, grad),
        }
    }
}

/// `grad · (exponent · v^(exponent − 1))`; zeros for the exponent 0, whatever `v` is.
fn pow_gradient(exponent: f64, v: &Array, grad: &Array) -> Result<Array> {
    if exponent == 0.0 {
        return v.zeros_like();
    }
    let lower = context::within("pow", || power(v, exponent - 1.0))?;
    let slope = context::within("mul", || lower.affine(exponent, 0.0))?;
    context::within("mul", || grad.mul(&slope))
}

/// `v^exponent`; the square has an operation of its own.
fn power(v: &Array, exponent: f64) -> Result<Array> {
    v.unary(if exponent == 2.0 { UnaryOp::Square } else { UnaryOp::Pow { exponent } })
}

/// `grad` where `min ≤ v ≤ max`, else 0. PyTorch holds a zero, and a mask for each bound. The masks are not computed one by one here: an
/// element is within the bounds if clamping does not change it.
fn clamp_gradient(min: f64, max: f64, v: &Array, grad: &Array) -> Result<Array> {
    let zero = Array::zeros(v.device(), &[], grad.dtype())?;
    let inside = Array::empty(v.device(), v.dims(), DType::Bool)?;
    let two_bounds = min != f64::NEG_INFINITY && max != f64::INFINITY;
    let torch = v.device().profile().torch_temporaries;
    let _second = if torch && two_bounds { Some(inside.empty_like()?) } else { None };
    let out = v.empty_like()?;
    v.unary_into(UnaryOp::Clamp { min, max }, &out)?;
    v.binary_into(BinaryOp::Eq, &out, &inside)?;
    grad.select_into(&inside, &zero, &out)?;
    Ok(out)
}

struct UnaryBackward {
    name: &'static str,
    rule: Rule,
}

impl Function for UnaryBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let value = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = self.rule.gradient(&value, grad)?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

fn unary(op: &'static str, name: &'static str, x: &Tensor, kernel: UnaryOp, rule: Rule) -> Result<Tensor> {
    let in_full = matches!(rule, Rule::Exp | Rule::Log | Rule::Rsqrt | Rule::Reciprocal | Rule::Pow { .. });
    let _op = context::op(op);
    let x = &if in_full { full(x)? } else { x.clone() };
    // PyTorch's absolute value resizes its result itself.
    let compute =
        || context::within(if matches!(rule, Rule::Abs) { "resize_" } else { "" }, || x.array().unary(kernel));
    let save = |role, array: &Array, saved: &mut Recorder| {
        saved.save(role, array)?;
        Ok::<Box<dyn Function>, Error>(Box::new(UnaryBackward { name, rule }))
    };
    if !rule.saves_result() {
        return record_inputs(&[x], |saved| save("self", x.array(), saved), compute);
    }
    let y = compute()?;
    record(y.clone(), &[x], |saved| save("result", &y, saved))
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $kernel:ident, $node:literal;)*) => {
        $($(#[$doc])*
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            unary(stringify!($name), $node, x, UnaryOp::$kernel, Rule::$kernel)
        })*
    };
}

functions! {
    /// `eˣ`. Saves its result.
    exp => Exp, "ExpBackward0";
    /// `ln x`. Saves its input.
    log => Log, "LogBackward0";
    /// `√x`. Saves its result.
    sqrt => Sqrt, "SqrtBackward0";
    /// `1/√x`. Saves its result.
    rsqrt => Rsqrt, "RsqrtBackward0";
    /// `1/x`. Saves its result.
    reciprocal => Reciprocal, "ReciprocalBackward0";
    /// `sin x`. Saves its input.
    sin => Sin, "SinBackward0";
    /// `cos x`. Saves its input.
    cos => Cos, "CosBackward0";
    /// `|x|`; its gradient at 0 is 0. Saves its input.
    abs => Abs, "AbsBackward0";
}

/// `x^exponent`. Saves its input.
pub fn pow(x: &Tensor, exponent: f64) -> Result<Tensor> {
    let kernel = if exponent == 2.0 { UnaryOp::Square } else { UnaryOp::Pow { exponent } };
    unary("pow", "PowBackward0", x, kernel, Rule::Pow { exponent })
}

/// `x²`, which is [`pow`] with 2.
pub fn square(x: &Tensor) -> Result<Tensor> {
    pow(x, 2.0)
}

/// `min(max(x, min), max)`; an infinite bound has no effect. Gradients flow where nothing was clamped, the bounds themselves included. Saves
/// its input.
pub fn clamp(x: &Tensor, min: f64, max: f64) -> Result<Tensor> {
    unary("clamp", "ClampBackward1", x, UnaryOp::Clamp { min, max }, Rule::Clamp { min, max })
}

/// [`clamp`] in the memory of `x`. Saves a copy of its input, so that it spares no memory if a gradient is required.
///
/// # Errors
/// [`Error::Invalid`] for a leaf that requires a gradient; errors of the device.
pub fn clamp_(x: &Tensor, min: f64, max: f64) -> Result<Tensor> {
    let _op = context::op("clamp_");
    x.may_change_in_place("clamp_")?;
    let save = |saved: &mut Recorder| {
        let before = context::within("clone", || x.array().copied())?;
        saved.save("self", &before)?;
        let rule = Rule::Clamp { min, max };
        Ok::<Box<dyn Function>, Error>(Box::new(UnaryBackward { name: "ClampBackward1", rule }))
    };
    record_inputs(&[x], save, || {
        x.array().unary_(UnaryOp::Clamp { min, max })?;
        Ok(x.array().clone())
    })
}

/// [`exp`] in the memory of `x`. Saves its result, which is that memory. Errors as [`clamp_`].
pub fn exp_(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("exp_");
    x.may_change_in_place("exp_")?;
    x.array().unary_(UnaryOp::Exp)?;
    record(x.array().clone(), &[x], |saved| {
        saved.save("result", x.array())?;
        Ok(Box::new(UnaryBackward { name: "ExpBackward0", rule: Rule::Exp }))
    })
}

/// Backward of `x → mul·x + add`: the gradient is `mul·grad`, or `grad` itself without a factor.
struct AffineBackward {
    name: &'static str,
    /// Name of the operator that multiplies the gradient.
    op: &'static str,
    mul: Option<f64>,
}

impl Function for AffineBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        Ok(smallvec![Some(match self.mul {
            Some(-1.0) => {
                let _op = context::op("neg");
                grad.unary(UnaryOp::Neg)?
            }
            Some(mul) => {
                let _op = context::op(self.op);
                grad.affine(mul, 0.0)?
            }
            None => grad,
        })])
    }
}

fn affine(op: &'static str, x: &Tensor, mul: f64, add: f64, gradient: AffineBackward) -> Result<Tensor> {
    let _op = context::op(op);
    let y = x.array().affine(mul, add)?;
    record(y, &[x], |_| Ok(Box::new(gradient)))
}

/// `x + value`. Saves nothing.
pub fn add_scalar(x: &Tensor, value: f64) -> Result<Tensor> {
    affine("add", x, 1.0, value, AffineBackward { name: "AddBackward0", op: "mul", mul: None })
}

/// `x − value`. Saves nothing.
pub fn sub_scalar(x: &Tensor, value: f64) -> Result<Tensor> {
    affine("sub", x, 1.0, -value, AffineBackward { name: "SubBackward0", op: "mul", mul: None })
}

/// `value − x`. Saves nothing.
pub fn rsub_scalar(x: &Tensor, value: f64) -> Result<Tensor> {
    affine("rsub", x, -1.0, value, AffineBackward { name: "RsubBackward1", op: "mul", mul: Some(-1.0) })
}

/// `value · x`. Saves nothing.
pub fn mul_scalar(x: &Tensor, value: f64) -> Result<Tensor> {
    affine("mul", x, value, 0.0, AffineBackward { name: "MulBackward0", op: "mul", mul: Some(value) })
}

/// `x *= 1` in the memory of `x`: the values stay, and the gradient gets a product of its own. Saves nothing. Use only the returned tensor
/// afterwards, not `x`.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a leaf that requires a gradient.
pub fn times_one_(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("mul_");
    x.may_change_in_place("mul_")?;
    let gradient = AffineBackward { name: "MulBackward0", op: "mul", mul: Some(1.0) };
    record(x.array().clone(), &[x], |_| Ok(Box::new(gradient)))
}

/// [`mul_scalar`] as PyTorch's own operators call it: its node has another name.
pub(in crate::ops) fn mul_by_scalar(x: &Tensor, value: f64) -> Result<Tensor> {
    affine("mul", x, value, 0.0, AffineBackward { name: "MulBackward1", op: "mul", mul: Some(value) })
}

/// `x / value`, by the product with the reciprocal, as PyTorch computes it on a GPU. Saves nothing.
pub fn div_scalar(x: &Tensor, value: f64) -> Result<Tensor> {
    affine("div", x, 1.0 / value, 0.0, AffineBackward { name: "DivBackward0", op: "div", mul: Some(1.0 / value) })
}

/// `−x`. Saves nothing.
pub fn neg(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("neg");
    let y = x.array().unary(UnaryOp::Neg)?;
    record(y, &[x], |_| Ok(Box::new(AffineBackward { name: "NegBackward0", op: "mul", mul: Some(-1.0) })))
}
