//! Arithmetic and comparisons.

use memcore::backend::kernel::BinaryOp;
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::super::call::Call;
use super::super::value::{Made, Value};
use super::host;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("add.Tensor", add),
    ("add.Scalar", add),
    ("sub.Tensor", sub),
    ("sub.Scalar", sub),
    ("rsub.Scalar", rsub),
    ("mul.Tensor", mul),
    ("mul.Scalar", mul),
    ("div.Tensor", div),
    ("div.Scalar", div),
    ("true_divide.Tensor", div),
    ("floor_divide.default", floor_divide),
    ("div.Tensor_mode", |c| match c.text("rounding_mode")? {
        Some("floor") => floor_divide(c),
        mode => Err(c.error(format!("rounded by {mode:?} is not supported; by floor, of whole numbers, is"))),
    }),
    ("add_.Tensor", add_),
    ("neg.default", |c| of_one(c, |x| of_numbers(x, "neg", ops::neg, |v| -v))),
    ("abs.default", |c| {
        let abs = |x: &Tensor| if x.dtype().is_complex() { ops::abs_of_complex(x) } else { ops::abs(x) };
        of_one(c, |x| of_numbers(x, "abs", abs, f64::abs))
    }),
    ("exp.default", |c| of_one(c, ops::exp)),
    ("log.default", |c| of_one(c, ops::log)),
    ("sqrt.default", |c| of_one(c, ops::sqrt)),
    ("rsqrt.default", |c| of_one(c, ops::rsqrt)),
    ("reciprocal.default", |c| of_one(c, ops::reciprocal)),
    ("sin.default", |c| of_one(c, ops::sin)),
    ("cos.default", |c| of_one(c, ops::cos)),
    ("square.default", |c| of_one(c, ops::square)),
    ("tan.default", |c| of_one(c, ops::tan)),
    ("atan.default", |c| of_one(c, ops::atan)),
    ("sinh.default", |c| of_one(c, ops::sinh)),
    ("cosh.default", |c| of_one(c, ops::cosh)),
    ("log1p.default", |c| of_one(c, ops::log1p)),
    ("expm1.default", |c| of_one(c, ops::expm1)),
    ("log2.default", |c| of_one(c, ops::log2)),
    ("erf.default", |c| of_one(c, ops::erf)),
    ("log10.default", |c| of_one(c, ops::log10)),
    ("asin.default", |c| of_one(c, ops::asin)),
    ("acos.default", |c| of_one(c, ops::acos)),
    ("logit.default", |c| {
        c.not_set("eps")?;
        of_one(c, ops::logit)
    }),
    ("floor.default", |c| of_one(c, ops::floor)),
    ("ceil.default", |c| of_one(c, ops::ceil)),
    ("round.default", |c| of_one(c, ops::round)),
    ("trunc.default", |c| of_one(c, ops::trunc)),
    ("sign.default", |c| of_one(c, |x| of_numbers(x, "sign", ops::sign, |v| if v == 0.0 { 0.0 } else { v.signum() }))),
    ("pow.Tensor_Scalar", |c| {
        let exponent = c.float("exponent")?;
        of_one(c, |x| of_numbers(x, "pow", |x| ops::pow(x, exponent), |v| v.powf(exponent)))
    }),
    ("pow.Scalar", |c| {
        let (base, exponent) = (c.float("self")?, c.tensor("exponent")?);
        if base <= 0.0 {
            return Err(c.error("of a number that is not above 0 is not supported"));
        }
        Ok(Made::tensor(ops::power_of(base, exponent)?))
    }),
    ("pow.Tensor_Tensor", |c| of_one(c, |x| ops::pow_tensors(x, c.tensor("exponent")?))),
    ("clamp.default", |c| {
        let (min, max) = (c.float_or("min", f64::NEG_INFINITY)?, c.float_or("max", f64::INFINITY)?);
        of_one(c, |x| of_numbers(x, "clamp", |x| ops::clamp(x, min, max), |v| v.max(min).min(max)))
    }),
    ("clamp.Tensor", |c| of_one(c, |x| ops::clamp_between(x, c.maybe_tensor("min")?, c.maybe_tensor("max")?))),
    ("clamp_min.default", |c| {
        let min = c.float("min")?;
        of_one(c, |x| of_numbers(x, "clamp", |x| ops::clamp(x, min, f64::INFINITY), |v| v.max(min)))
    }),
    ("clamp_max.default", |c| {
        let max = c.float("max")?;
        of_one(c, |x| of_numbers(x, "clamp", |x| ops::clamp(x, f64::NEG_INFINITY, max), |v| v.min(max)))
    }),
    ("isnan.default", |c| {
        of_one(c, |x| host::map(&x.detach(), "isnan", DType::Bool, |v| f64::from(u8::from(v.is_nan()))))
    }),
    ("addcmul.default", |c| {
        let (a, b, value) = (c.tensor("tensor1")?, c.tensor("tensor2")?, c.float_or("value", 1.0)?);
        of_one(c, |x| ops::addcmul(x, a, b, value))
    }),
    ("lerp.Scalar", |c| {
        let (end, weight) = (c.tensor("end")?, c.float("weight")?);
        of_one(c, |x| ops::lerp(x, end, weight))
    }),
    ("maximum.default", |c| Ok(Made::tensor(ops::maximum(c.tensor("self")?, c.tensor("other")?)?))),
    ("minimum.default", |c| Ok(Made::tensor(ops::minimum(c.tensor("self")?, c.tensor("other")?)?))),
    ("min.other", |c| Ok(Made::tensor(ops::minimum(c.tensor("self")?, c.tensor("other")?)?))),
    ("max.other", |c| Ok(Made::tensor(ops::maximum(c.tensor("self")?, c.tensor("other")?)?))),
    ("eq.Scalar", |c| compared(c, "eq", |a, b| a == b)),
    ("ne.Scalar", |c| compared(c, "ne", |a, b| a != b)),
    ("lt.Scalar", |c| compared(c, "lt", |a, b| a < b)),
    ("le.Scalar", |c| compared(c, "le", |a, b| a <= b)),
    ("gt.Scalar", |c| compared(c, "gt", |a, b| a > b)),
    ("ge.Scalar", |c| compared(c, "ge", |a, b| a >= b)),
    ("eq.Tensor", |c| compared(c, "eq", |a, b| a == b)),
    ("ne.Tensor", |c| compared(c, "ne", |a, b| a != b)),
    ("lt.Tensor", |c| compared(c, "lt", |a, b| a < b)),
    ("le.Tensor", |c| compared(c, "le", |a, b| a <= b)),
    ("gt.Tensor", |c| compared(c, "gt", |a, b| a > b)),
    ("ge.Tensor", |c| compared(c, "ge", |a, b| a >= b)),
    ("__and__.Tensor", |c| logical(c, "__and__>bitwise_and", |a, b| a && b)),
    ("__or__.Tensor", |c| logical(c, "__or__>bitwise_or", |a, b| a || b)),
    ("bitwise_and.Tensor", |c| logical(c, "bitwise_and", |a, b| a && b)),
    ("bitwise_or.Tensor", |c| logical(c, "bitwise_or", |a, b| a || b)),
    ("logical_and.default", |c| logical(c, "logical_and", |a, b| a && b)),
    ("logical_or.default", |c| logical(c, "logical_or", |a, b| a || b)),
    ("bitwise_xor.Tensor", |c| logical(c, "bitwise_xor", |a, b| a != b)),
    ("logical_xor.default", |c| logical(c, "logical_xor", |a, b| a != b)),
    ("logical_not.default", |c| of_one(c, |x| negated(x, "logical_not"))),
    ("bitwise_not.default", |c| {
        if c.tensor("self")?.dtype() != DType::Bool {
            return Err(c.error("of numbers is not supported; of a mask is"));
        }
        of_one(c, |x| negated(x, "bitwise_not"))
    }),
    ("masked_fill.Scalar", |c| {
        let (mask, value) = (c.tensor("mask")?, c.float("value")?);
        of_one(c, |x| ops::masked_fill(x, mask, value))
    }),
    ("where.self", |c| {
        let condition = c.tensor("condition")?;
        let (a, b) = (chosen(c, "self")?, chosen(c, "other")?);
        Ok(Made::tensor(ops::where_(condition, &a, &b)?))
    }),
    ("where.ScalarOther", where_scalar_other),
];

/// Second operand: a number, with true if it is a float; or a tensor.
enum Other<'a> {
    Number(f64, bool),
    Tensor(&'a Tensor),
}

fn other<'a>(c: &Call<'a>) -> Result<Other<'a>> {
    operand(c, "other")
}

fn operand<'a>(c: &Call<'a>, name: &str) -> Result<Other<'a>> {
    match c.scalar(name)? {
        Value::Tensor(_) => Ok(Other::Tensor(c.tensor(name)?)),
        Value::Int(value) => Ok(Other::Number(value as f64, false)),
        Value::Float(value) => Ok(Other::Number(value, true)),
        Value::Bool(value) => Ok(Other::Number(f64::from(u8::from(value)), false)),
        Value::None | Value::Adapted(_) => Err(c.error(format!("the argument {name} has no value"))),
    }
}

/// Computes floats with the operator `floats`, and integers, which have no gradient, on the host.
fn of_numbers(
    x: &Tensor,
    op: &'static str,
    floats: impl FnOnce(&Tensor) -> Result<Tensor>,
    whole: impl Fn(f64) -> f64,
) -> Result<Tensor> {
    if x.dtype().is_differentiable() { floats(x) } else { host::map(x, op, x.dtype(), whole) }
}

/// Returns the type of `x op number` for an `x` that is not a float.
fn with_number(dtype: DType, is_float: bool) -> DType {
    match (is_float, dtype) {
        (true, _) => DType::F32,
        (false, DType::Bool) => DType::I64,
        (false, dtype) => dtype,
    }
}

/// Three forms of an operator: for two tensors of which one is a float, for a float tensor and a number, and for integers.
struct Forms {
    op: &'static str,
    tensors: fn(&Tensor, &Tensor) -> Result<Tensor>,
    number: fn(&Tensor, f64) -> Result<Tensor>,
    whole: fn(f64, f64) -> f64,
    /// True if the result of two integers is a float.
    divides: bool,
}

impl Forms {
    fn apply(&self, c: &Call<'_>) -> Result<Made> {
        let x = c.tensor("self")?;
        let float = x.dtype().is_differentiable();
        Ok(Made::tensor(match other(c)? {
            Other::Number(value, _) if float => (self.number)(x, value)?,
            Other::Number(value, is_float) => {
                let dtype = with_number(x.dtype(), is_float || self.divides);
                host::map(x, self.op, dtype, |v| (self.whole)(v, value))?
            }
            Other::Tensor(other) if float || other.dtype().is_differentiable() => (self.tensors)(x, other)?,
            Other::Tensor(other) => {
                let dtype = if self.divides { DType::F32 } else { host::meeting(x.dtype(), other.dtype()) };
                host::zip(x, other, self.op, dtype, self.whole)?
            }
        }))
    }
}

fn no_factor(c: &Call<'_>) -> Result<()> {
    if c.float_or("alpha", 1.0)? == 1.0 { Ok(()) } else { Err(c.error("a factor (alpha) is not supported")) }
}

fn add(c: &Call<'_>) -> Result<Made> {
    let factor = c.float_or("alpha", 1.0)?;
    if factor != 1.0 {
        return add_times(c, factor);
    }
    Forms { op: "add", tensors: ops::add, number: ops::add_scalar, whole: |a, b| a + b, divides: false }.apply(c)
}

/// Adds a tensor times a number to a tensor or to another number, in one kernel: of tensors without a gradient, as masks that become weights.
fn add_times(c: &Call<'_>, factor: f64) -> Result<Made> {
    let Other::Tensor(times) = other(c)? else {
        return Err(c.error("vramlab supports a factor (alpha) only beside a tensor"));
    };
    let is_trained = |x: &Tensor| x.requires_grad();
    Ok(Made::tensor(match operand(c, "self")? {
        Other::Tensor(x) if !is_trained(x) && !is_trained(times) => {
            host::zip(x, times, "add", host::meeting(x.dtype(), times.dtype()), |a, b| a + factor * b)?
        }
        Other::Number(number, is_float) if !is_trained(times) => {
            let dtype = if times.dtype().is_float() { times.dtype() } else { with_number(times.dtype(), is_float) };
            host::map(times, "add", dtype, |b| number + factor * b)?
        }
        _ => return Err(c.error("vramlab supports a factor (alpha) only for tensors without a gradient")),
    }))
}

fn sub(c: &Call<'_>) -> Result<Made> {
    no_factor(c)?;
    Forms { op: "sub", tensors: ops::sub, number: ops::sub_scalar, whole: |a, b| a - b, divides: false }.apply(c)
}

fn rsub(c: &Call<'_>) -> Result<Made> {
    no_factor(c)?;
    let reversed = |a: &Tensor, b: &Tensor| ops::sub(b, a);
    Forms { op: "rsub", tensors: reversed, number: ops::rsub_scalar, whole: |a, b| b - a, divides: false }.apply(c)
}

fn mul(c: &Call<'_>) -> Result<Made> {
    Forms { op: "mul", tensors: ops::mul, number: ops::mul_scalar, whole: |a, b| a * b, divides: false }.apply(c)
}

fn div(c: &Call<'_>) -> Result<Made> {
    Forms { op: "div", tensors: ops::div, number: ops::div_scalar, whole: |a, b| a / b, divides: true }.apply(c)
}

/// Divides whole numbers by a number and rounds down.
fn floor_divide(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    match other(c)? {
        Other::Number(value, false) if !x.dtype().is_float() => {
            let dtype = with_number(x.dtype(), false);
            Ok(Made::tensor(host::map(x, "floor_divide", dtype, |v| (v / value).floor())?))
        }
        _ => Err(c.error("of floats, or by a tensor, is not supported")),
    }
}

/// Adds a tensor or a number in place; a float is not added to integers.
fn add_(c: &Call<'_>) -> Result<Made> {
    no_factor(c)?;
    let x = c.tensor("self")?;
    match other(c)? {
        Other::Tensor(other) => Ok(Made::tensor(ops::add_(x, other)?)),
        Other::Number(_, true) if !x.dtype().is_float() => Err(c.error("of a whole number and a float in place")),
        Other::Number(add, _) => Ok(Made::tensor(ops::affine_(x, 1.0, add)?)),
    }
}

/// Compares to a mask: two tensors of one type with a kernel, anything else on the host.
fn compared(c: &Call<'_>, op: &'static str, holds: fn(f64, f64) -> bool) -> Result<Made> {
    let x = c.tensor("self")?;
    let number = |a: f64, b: f64| f64::from(u8::from(holds(a, b)));
    Ok(Made::tensor(match other(c)? {
        Other::Number(value, _) => host::map(&x.detach(), op, DType::Bool, |v| number(v, value))?,
        Other::Tensor(other) if x.dtype() == other.dtype() => {
            let _op = context::op(op);
            Tensor::from_array(x.array().binary(kernel(op), other.array())?)
        }
        Other::Tensor(other) => host::zip(x, other, op, DType::Bool, number)?,
    }))
}

fn kernel(op: &str) -> BinaryOp {
    match op {
        "eq" => BinaryOp::Eq,
        "ne" => BinaryOp::Ne,
        "lt" => BinaryOp::Lt,
        "le" => BinaryOp::Le,
        "gt" => BinaryOp::Gt,
        _ => BinaryOp::Ge,
    }
}

fn logical(c: &Call<'_>, op: &'static str, holds: fn(bool, bool) -> bool) -> Result<Made> {
    let (a, b) = (c.tensor("self")?, c.tensor("other")?);
    if a.dtype() != DType::Bool || b.dtype() != DType::Bool {
        return Err(c.error("of numbers is not supported; of masks is"));
    }
    Ok(Made::tensor(host::zip(a, b, op, DType::Bool, |a, b| f64::from(u8::from(holds(a != 0.0, b != 0.0))))?))
}

fn negated(x: &Tensor, op: &'static str) -> Result<Tensor> {
    host::map(&x.detach(), op, DType::Bool, |v| f64::from(u8::from(v == 0.0)))
}

/// Returns what `where` may choose; a constant of the host is copied to the device first.
fn chosen(c: &Call<'_>, name: &str) -> Result<Tensor> {
    let (dtype, value) = match c.constant(name) {
        Some(Value::Int(value)) => (DType::I64, value as f64),
        Some(Value::Float(value)) => (DType::F32, value),
        _ => return c.tensor(name).cloned(),
    };
    c.ignore(&[name]);
    let _op = context::op("_to_copy");
    Array::full(c.device, &[], dtype, value).map(Tensor::from_array)
}

/// Selects from a tensor and a number. The number first becomes a tensor on the device, as in PyTorch.
fn where_scalar_other(c: &Call<'_>) -> Result<Made> {
    let (condition, x, value) = (c.tensor("condition")?, c.tensor("self")?, c.float("other")?);
    let _op = context::op("where");
    let number = {
        let _op = context::op("scalar_tensor");
        Tensor::from_array(Array::full(c.device, &[], x.dtype(), value)?)
    };
    Ok(Made::tensor(ops::where_(condition, x, &number)?))
}
