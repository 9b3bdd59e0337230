//! Functions of pairs of elements: angles, remainders, what is not a number; and what runs along an axis.

use memcore::autograd::Autocast;
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::super::call::{Call, Sizes};
use super::super::value::{Made, Value};
use super::host;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("atan2.default", |c| of_one(c, |y| ops::atan2(y, c.tensor("other")?))),
    ("asinh.default", |c| of_one(c, ops::asinh)),
    ("acosh.default", |c| of_one(c, ops::acosh)),
    ("atanh.default", |c| of_one(c, ops::atanh)),
    ("logaddexp.default", |c| of_one(c, |a| ops::logaddexp(a, c.tensor("other")?))),
    ("lerp.Tensor", |c| of_one(c, |a| ops::lerp_by(a, c.tensor("end")?, c.tensor("weight")?))),
    ("addcdiv.default", |c| {
        let (a, b, value) = (c.tensor("tensor1")?, c.tensor("tensor2")?, c.float_or("value", 1.0)?);
        of_one(c, |x| ops::addcdiv(x, a, b, value))
    }),
    ("frac.default", |c| of_one(c, ops::frac)),
    ("fmod.Scalar", |c| left_over(c, "fmod", ops::fmod_by, |a, b| a % b)),
    ("fmod.Tensor", |c| left_over_of_tensors(c, "fmod", ops::fmod, |a, b| a % b)),
    ("remainder.Scalar", |c| left_over(c, "remainder", ops::remainder_by, floored)),
    ("remainder.Tensor", |c| left_over_of_tensors(c, "remainder", ops::remainder, floored)),
    ("nan_to_num.default", |c| {
        let x = c.tensor("self")?;
        let largest = match x.dtype() {
            DType::F16 => 65504.0,
            DType::BF16 => 3.389_531_389_251_535_5e38,
            DType::F64 => f64::MAX,
            _ => f64::from(f32::MAX),
        };
        let numbers = [c.float_or("nan", 0.0)?, c.float_or("posinf", largest)?, c.float_or("neginf", -largest)?];
        of_one(c, |x| ops::nan_to_num(x, numbers))
    }),
    ("isinf.default", |c| of_one(c, isinf)),
    ("positive.default", |c| of_one(c, |x| Ok(x.clone()))),
    ("masked_fill.Tensor", |c| {
        let (mask, value) = (c.tensor("mask")?, c.tensor("value")?);
        if value.requires_grad() || value.rank() > 0 {
            return Err(c.error("with a value that has a gradient or dimensions is not supported"));
        }
        // On a device that computes nothing the value is any.
        let value = if c.device.computes() { value.array().host_values()?.first().copied() } else { None };
        of_one(c, |x| ops::masked_fill(x, mask, value.unwrap_or_default()))
    }),
    ("where.ScalarSelf", |c| {
        let (condition, value, other) = (c.tensor("condition")?, c.float("self")?, c.tensor("other")?);
        let _op = context::op("where");
        let number = {
            let _op = context::op("scalar_tensor");
            Tensor::from_array(Array::full(c.device, &[], other.dtype(), value)?)
        };
        Ok(Made::tensor(ops::where_(condition, &number, other)?))
    }),
    ("where.Scalar", |c| {
        let dtype = match [c.scalar("self")?, c.scalar("other")?] {
            [Value::Bool(_), Value::Bool(_)] => DType::Bool,
            [Value::Int(_) | Value::Bool(_), Value::Int(_) | Value::Bool(_)] => DType::I64,
            _ => DType::F32,
        };
        let _op = context::op("where");
        let number = |name: &str| {
            let _op = context::op("scalar_tensor");
            Ok::<_, memcore::Error>(Tensor::from_array(Array::full(c.device, &[], dtype, c.float(name)?)?))
        };
        // PyTorch makes the second one first.
        let (other, chosen) = (number("other")?, number("self")?);
        Ok(Made::tensor(ops::where_(c.tensor("condition")?, &chosen, &other)?))
    }),
    ("cumprod.default", |c| {
        if c.dtype("dtype")?.is_some() {
            return Err(c.error("in another type is not supported"));
        }
        of_one(c, |x| ops::cumprod(x, c.axis("dim", 0, x)?))
    }),
    ("cummax.default", |c| two(c, |x| ops::cummax(x, c.axis("dim", 0, x)?))),
    ("cummin.default", |c| two(c, |x| ops::cummin(x, c.axis("dim", 0, x)?))),
    ("median.dim", |c| {
        let keep = c.flag("keepdim", false)?;
        two(c, |x| ops::median_axis(x, c.axis("dim", 0, x)?, keep))
    }),
    ("kthvalue.default", |c| {
        let k = usize::try_from(c.int("k")?).map_err(|_| c.error("a negative place"))?;
        let keep = c.flag("keepdim", false)?;
        two(c, |x| ops::kth_value(x, k, c.axis("dim", -1, x)?, keep))
    }),
    ("cdist.default", |c| {
        if c.int_or("compute_mode", 0)? != 0 {
            return Err(c.error("with another compute_mode is not supported"));
        }
        Ok(Made::tensor(ops::cdist(c.tensor("x1")?, c.tensor("x2")?, c.float_or("p", 2.0)?)?))
    }),
    ("tensordot.default", |c| {
        let (a, b) = (c.tensor("self")?, c.tensor("other")?);
        Ok(Made::tensor(contracted(c, a, b, &c.axes("dims_self", a)?, &c.axes("dims_other", b)?)?))
    }),
    ("inner.default", |c| {
        let (a, b) = (c.tensor("self")?, c.tensor("other")?);
        let (Some(last_a), Some(last_b)) = (a.rank().checked_sub(1), b.rank().checked_sub(1)) else {
            return Ok(Made::tensor(ops::mul(a, b)?));
        };
        Ok(Made::tensor(contracted(c, a, b, &[last_a], &[last_b])?))
    }),
    ("kron.default", |c| of_one(c, |a| kron(a, c.tensor("other")?))),
];

/// What Python's `%` gives.
fn floored(a: f64, b: f64) -> f64 {
    a - b * (a / b).floor()
}

/// Of two results.
fn two(c: &Call<'_>, of: impl FnOnce(&Tensor) -> Result<(Tensor, Tensor)>) -> Result<Made> {
    Ok(Made::tensors(<[Tensor; 2]>::from(of(c.tensor("self")?)?)))
}

/// What is left of a division by a number: of floats with the operator, of whole numbers on the host.
fn left_over(
    c: &Call<'_>,
    op: &'static str,
    floats: fn(&Tensor, f64) -> Result<Tensor>,
    whole: fn(f64, f64) -> f64,
) -> Result<Made> {
    let (x, by) = (c.tensor("self")?, c.float("other")?);
    let is_whole = matches!(c.scalar("other")?, Value::Int(_) | Value::Bool(_));
    Ok(Made::tensor(match (x.dtype().is_float(), is_whole) {
        (true, _) => floats(x, by)?,
        (false, true) => host::map(x, op, x.dtype(), |v| whole(v, by))?,
        (false, false) => return Err(c.error("of whole numbers by a float is not supported")),
    }))
}

/// What is left of a division by a tensor, as [`left_over`].
fn left_over_of_tensors(
    c: &Call<'_>,
    op: &'static str,
    floats: fn(&Tensor, &Tensor) -> Result<Tensor>,
    whole: fn(f64, f64) -> f64,
) -> Result<Made> {
    let (a, b) = (c.tensor("self")?, c.tensor("other")?);
    let is_float = a.dtype().is_float() || b.dtype().is_float();
    let of_whole = || host::zip(a, b, op, host::meeting(a.dtype(), b.dtype()), whole);
    Ok(Made::tensor(if is_float { floats(a, b)? } else { of_whole()? }))
}

/// Which elements are infinite: PyTorch compares their absolute values.
fn isinf(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("isinf");
    let _absolute = {
        let _op = context::op("abs");
        Array::empty(x.device(), x.dims(), x.dtype())?
    };
    host::map(&x.detach(), "eq", DType::Bool, |v| f64::from(u8::from(v.is_infinite())))
}

/// Sums products over pairs of axes: both tensors are seen as matrices. Autocast leaves it in the type of its operands.
fn contracted(c: &Call<'_>, a: &Tensor, b: &Tensor, of_a: &[usize], of_b: &[usize]) -> Result<Tensor> {
    let fits = of_a.len() == of_b.len() && of_a.iter().zip(of_b).all(|(&i, &j)| a.dims()[i] == b.dims()[j]);
    if !fits || a.dtype() != b.dtype() {
        return Err(c.error(format!("over {of_a:?} of {:?} and {of_b:?} of {:?}", a.dims(), b.dims())));
    }
    let _off = Autocast::off();
    let _op = context::op("tensordot");
    let others = |x: &Tensor, summed: &[usize]| (0..x.rank()).filter(|axis| !summed.contains(axis)).collect::<Sizes>();
    let (left, right) = (others(a, of_a), others(b, of_b));
    let size = |x: &Tensor, axes: &[usize]| axes.iter().map(|&axis| x.dims()[axis]).product::<usize>();
    let rows = ops::permute(a, &[&left[..], of_a].concat())?;
    let rows = ops::reshape(&rows, &[size(a, &left), size(a, of_a)])?;
    let columns = ops::permute(b, &[of_b, &right[..]].concat())?;
    let columns = ops::reshape(&columns, &[size(b, of_b), size(b, &right)])?;
    let dims: Sizes = left.iter().map(|&i| a.dims()[i]).chain(right.iter().map(|&i| b.dims()[i])).collect();
    ops::reshape(&ops::mm(&rows, &columns)?, &dims)
}

/// The product of each element of one tensor with all of another, in blocks.
fn kron(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let rank = a.rank().max(b.rank());
    let wide = |x: &Tensor, axis: usize| (axis + x.rank()).checked_sub(rank).map_or(1, |axis| x.dims()[axis]);
    let each = |of: &dyn Fn(usize) -> [usize; 2]| (0..rank).flat_map(of).collect::<Vec<usize>>();
    let _op = context::op("kron");
    let outer = ops::reshape(a, &each(&|axis| [wide(a, axis), 1]))?;
    let inner = ops::reshape(b, &each(&|axis| [1, wide(b, axis)]))?;
    let product = ops::mul(&outer, &inner)?;
    ops::view(&product, &(0..rank).map(|axis| wide(a, axis) * wide(b, axis)).collect::<Vec<_>>())
}
