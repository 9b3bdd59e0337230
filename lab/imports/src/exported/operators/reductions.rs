//! Reductions over some axes or all: sums, means, extrema, norms, and whether masks hold.

use memcore::{Array, DType, Result, Tensor, context, ops};

use super::super::call::{Call, Sizes};
use super::super::value::Made;
use super::host;
use super::layers::of_one;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("sum.default", |c| reduced(c, "dim", ops::sum_as)),
    ("sum.dim_IntList", |c| reduced(c, "dim", ops::sum_as)),
    ("mean.default", |c| reduced(c, "dim", ops::mean_as)),
    ("mean.dim", |c| reduced(c, "dim", ops::mean_as)),
    ("amax.default", |c| of_one(c, |x| ops::amax(x, &c.axes("dim", x)?, c.flag("keepdim", false)?))),
    ("amin.default", |c| of_one(c, |x| ops::amin(x, &c.axes("dim", x)?, c.flag("keepdim", false)?))),
    ("max.default", |c| of_one(c, ops::max_all)),
    ("min.default", |c| of_one(c, ops::min_all)),
    ("logsumexp.default", |c| of_one(c, |x| ops::logsumexp(x, &c.axes("dim", x)?, c.flag("keepdim", false)?))),
    ("linalg_vector_norm.default", norm),
    ("linalg_norm.default", |c| {
        let axes = c.axes("dim", c.tensor("self")?)?.len();
        if c.arg("ord").is_some() && axes != 1 {
            return Err(c.error("a norm of matrices is not supported; of vectors, with one dim, it is"));
        }
        norm(c)
    }),
    ("max.dim", |c| extremum(c, ops::max_axis)),
    ("min.dim", |c| extremum(c, ops::min_axis)),
    ("var.default", |c| spread(c, ops::var)),
    ("var.dim", |c| spread(c, ops::var)),
    ("var.correction", |c| spread(c, ops::var)),
    ("std.default", |c| spread(c, ops::std)),
    ("std.dim", |c| spread(c, ops::std)),
    ("std.correction", |c| spread(c, ops::std)),
    ("var_mean.dim", |c| spread_and_mean(c, ops::var_mean)),
    ("var_mean.correction", |c| spread_and_mean(c, ops::var_mean)),
    ("std_mean.dim", |c| spread_and_mean(c, ops::std_mean)),
    ("std_mean.correction", |c| spread_and_mean(c, ops::std_mean)),
    ("all.default", |c| mask_reduced(c, "all", |all, v| all && v)),
    ("all.dim", |c| mask_reduced(c, "all", |all, v| all && v)),
    ("all.dims", |c| mask_reduced(c, "all", |all, v| all && v)),
    ("any.default", |c| mask_reduced(c, "any", |any, v| any || v)),
    ("any.dim", |c| mask_reduced(c, "any", |any, v| any || v)),
    ("any.dims", |c| mask_reduced(c, "any", |any, v| any || v)),
];

/// A norm of vectors: the sum of absolute values, or the Euclidean one.
fn norm(c: &Call<'_>) -> Result<Made> {
    let order = c.float_or("ord", 2.0)?;
    if ![1.0, 2.0].contains(&order) || c.dtype("dtype")?.is_some() {
        return Err(c.error(format!("a norm of order {order}, or in another type, is not supported")));
    }
    let norm = if order == 1.0 { ops::norm_sum } else { ops::norm_axes };
    of_one(c, |x| norm(x, &c.axes("dim", x)?, c.flag("keepdim", false)?))
}

type Reduce = fn(&Tensor, &[usize], bool, DType) -> Result<Tensor>;

/// Reduces over the axes of the argument named `axes`, or over all if there are none.
fn reduced(c: &Call<'_>, axes: &str, reduce: Reduce) -> Result<Made> {
    let x = c.tensor("self")?;
    let (axes, keep) = (c.axes(axes, x)?, c.flag("keepdim", false)?);
    let dtype = c.dtype("dtype")?;
    let is_mean = c.node.target.starts_with("mean");
    if !x.dtype().is_differentiable() && dtype.is_none_or(|dtype| !dtype.is_float()) {
        if is_mean {
            return Err(c.error("the mean of whole numbers is not defined"));
        }
        return Ok(Made::tensor(whole_sum(x, &axes, keep, dtype.unwrap_or(DType::I64))?));
    }
    Ok(Made::tensor(match dtype {
        Some(dtype) => reduce(x, &axes, keep, dtype)?,
        None => match (is_mean, axes.is_empty()) {
            (true, true) => ops::mean(x)?,
            (true, false) => ops::mean_axes(x, &axes, keep)?,
            (false, true) => ops::sum(x)?,
            (false, false) => ops::sum_axes(x, &axes, keep)?,
        },
    }))
}

type Extremum = fn(&Tensor, usize, bool) -> Result<(Tensor, Tensor)>;

fn extremum(c: &Call<'_>, find: Extremum) -> Result<Made> {
    let x = c.tensor("self")?;
    let (values, indices) = find(x, c.axis("dim", 0, x)?, c.flag("keepdim", false)?)?;
    Ok(Made::tensors([values, indices]))
}

type Spread<T> = fn(&Tensor, &[usize], f64, bool) -> Result<T>;

fn spread(c: &Call<'_>, of: Spread<Tensor>) -> Result<Made> {
    let x = c.tensor("self")?;
    Ok(Made::tensor(of(x, &c.axes("dim", x)?, correction(c)?, c.flag("keepdim", false)?)?))
}

fn spread_and_mean(c: &Call<'_>, of: Spread<[Tensor; 2]>) -> Result<Made> {
    let x = c.tensor("self")?;
    Ok(Made::tensors(of(x, &c.axes("dim", x)?, correction(c)?, c.flag("keepdim", false)?)?))
}

/// Returns how much less than the number of elements squares are divided by: as a number, or by a flag.
fn correction(c: &Call<'_>) -> Result<f64> {
    Ok(if c.flag("unbiased", true)? { c.float_or("correction", 1.0)? } else { 0.0 })
}

/// Folds the elements of each group over `axes` (all axes if there are none) on the host.
fn folded(x: &Array, axes: &[usize], first: f64, fold: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>> {
    let is_folded = |axis: usize| axes.is_empty() || axes.contains(&axis);
    let kept: Sizes = kept_dims(x.dims(), axes, true);
    let mut out = vec![first; kept.iter().product()];
    for (i, value) in x.host_values()?.into_iter().enumerate() {
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for (axis, &size) in x.dims().iter().enumerate().rev() {
            if !is_folded(axis) {
                at += rest % size * step;
                step *= size;
            }
            rest /= size;
        }
        out[at] = fold(out[at], value);
    }
    Ok(out)
}

/// Returns the sizes of a reduction over `axes`, all axes if there are none. With `keep` they stay with size 1.
fn kept_dims(dims: &[usize], axes: &[usize], keep: bool) -> Sizes {
    let is_kept = |axis: usize| !axes.is_empty() && !axes.contains(&axis);
    let size = |(axis, &size): (usize, &usize)| if is_kept(axis) { Some(size) } else { keep.then_some(1) };
    dims.iter().enumerate().filter_map(size).collect()
}

/// Whether all elements of each group are true, or any: of masks and numbers, as a mask.
fn mask_reduced(c: &Call<'_>, op: &'static str, holds: fn(bool, bool) -> bool) -> Result<Made> {
    let x = c.tensor("self")?;
    let (axes, keep) = (c.axes("dim", x)?, c.flag("keepdim", false)?);
    let first = f64::from(u8::from(op == "all"));
    let fold = |so_far: f64, v: f64| f64::from(u8::from(holds(so_far != 0.0, v != 0.0)));
    let values = || folded(x.array(), &axes, first, fold);
    Ok(Made::tensor(host::made(c.device, op, &kept_dims(x.dims(), &axes, keep), DType::Bool, values)?))
}

/// Sums whole numbers or masks, which are converted to the type of the sum after it has its memory.
fn whole_sum(x: &Tensor, axes: &[usize], keep: bool, dtype: DType) -> Result<Tensor> {
    let values = || folded(x.array(), axes, 0.0, |sum, v| sum + v);
    let made = host::made(x.device(), "sum", &kept_dims(x.dims(), axes, keep), dtype, values)?;
    if x.dtype() != dtype {
        let _op = context::op("sum>to>_to_copy");
        drop(Array::empty(x.device(), x.dims(), dtype)?);
    }
    Ok(made)
}
