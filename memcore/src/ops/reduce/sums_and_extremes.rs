//! Reductions: sums, means, extrema and the Euclidean norm, over all axes or some.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, Pool2dGeometry, Pool2dGrad, PoolOp, ReduceOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full_type;
use crate::ops::shape::view::Dims;

/// Sum of all elements, a scalar. Saves nothing. Its gradient is a view that repeats the incoming one.
pub fn sum(x: &Tensor) -> Result<Tensor> {
    linear_reduction(x, ReduceOp::Sum, "SumBackward0", &[], false)
}

/// Sum over `axes`, which stay with size 1 if `keepdim`. No axes means all axes. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn sum_axes(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    linear_reduction(x, ReduceOp::Sum, "SumBackward1", axes, keepdim)
}

/// Mean of all elements, a scalar. Saves nothing.
pub fn mean(x: &Tensor) -> Result<Tensor> {
    linear_reduction(x, ReduceOp::Mean, "MeanBackward0", &[], false)
}

/// Mean over `axes`, which stay with size 1 if `keepdim`. No axes means all axes. Saves nothing.
pub fn mean_axes(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    linear_reduction(x, ReduceOp::Mean, "MeanBackward1", axes, keepdim)
}

/// [`sum_axes`] in the type `dtype`: `x.sum(axes, dtype=…)`. No axes means all axes.
pub fn sum_as(x: &Tensor, axes: &[usize], keepdim: bool, dtype: DType) -> Result<Tensor> {
    let name = if axes.is_empty() { "SumBackward0" } else { "SumBackward1" };
    linear_reduction_as(x, ReduceOp::Sum, name, axes, keepdim, dtype)
}

/// [`mean_axes`] in the type `dtype`: `x.mean(axes, dtype=…)`. No axes means all axes.
pub fn mean_as(x: &Tensor, axes: &[usize], keepdim: bool, dtype: DType) -> Result<Tensor> {
    let name = if axes.is_empty() { "MeanBackward0" } else { "MeanBackward1" };
    linear_reduction_as(x, ReduceOp::Mean, name, axes, keepdim, dtype)
}

fn linear_reduction(x: &Tensor, op: ReduceOp, name: &'static str, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    // Under autocast sums are float32; the kernel reads the lower type, without a cast.
    let to = if op == ReduceOp::Mean { x.dtype() } else { full_type(x.dtype()) };
    linear_reduction_as(x, op, name, axes, keepdim, to)
}

fn linear_reduction_as(
    x: &Tensor,
    op: ReduceOp,
    name: &'static str,
    axes: &[usize],
    keepdim: bool,
    to: DType,
) -> Result<Tensor> {
    let mean = op == ReduceOp::Mean;
    let _op = context::op(if mean { "mean" } else { "sum" });
    let y = x.array().reduce_as(to, op, axes, keepdim)?;
    record(y, &[x], |_| {
        let dims: Dims = x.dims().into();
        let kept = kept_dims(&dims, axes);
        let group = dims.iter().product::<usize>() / kept.iter().product::<usize>().max(1);
        let divisor = mean.then_some(group as f64);
        Ok(Box::new(LinearBackward { name, kept, dims, divisor, input: x.dtype() }))
    })
}

/// `dims` with size 1 in each of `axes`, or everywhere if there are none.
pub(in crate::ops) fn kept_dims(dims: &[usize], axes: &[usize]) -> Dims {
    let reduced = |i: usize| axes.is_empty() || axes.contains(&i);
    dims.iter().enumerate().map(|(i, &d)| if reduced(i) { 1 } else { d }).collect()
}

/// Backward of a sum or a mean.
struct LinearBackward {
    name: &'static str,
    /// Sizes of the result, with the reduced axes of size 1.
    kept: Dims,
    /// Sizes of the input.
    dims: Dims,
    /// Elements per group, for a mean; `None` for a sum.
    divisor: Option<f64>,
    /// Type of the input, and so of its gradient.
    input: DType,
}

impl Function for LinearBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let wide = grad.view(&self.kept)?.broadcast_to(&self.dims)?;
        Ok(smallvec![Some(match self.divisor {
            Some(n) => {
                let slope = context::within("div", || wide.affine(1.0 / n, 0.0))?;
                let _around = context::op(context::AROUND);
                let cast = context::within(".>to>_to_copy", || slope.cast(self.input))?;
                drop(slope);
                cast
            }
            None if wide.dtype() != self.input => {
                let _op = context::op(".>to>_to_copy");
                wide.cast(self.input)?
            }
            None => wide.keeping_base(),
        })])
    }
}

/// Largest element along `axis`, and the position of its first occurrence (i64, without history). Saves the positions.
pub fn max_axis(x: &Tensor, axis: usize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    selecting_reduction(x, ReduceOp::Max, axis, keepdim)
}

/// Smallest element along `axis`, and the position of its first occurrence (i64, without history). Saves the positions.
pub fn min_axis(x: &Tensor, axis: usize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    selecting_reduction(x, ReduceOp::Min, axis, keepdim)
}

/// Position of the largest element along `axis`, i64; of equal elements, the first. It has no history.
pub fn argmax(x: &Tensor, axis: usize, keepdim: bool) -> Result<Tensor> {
    let _op = context::op("argmax");
    Ok(Tensor::from_array(x.array().extremum_position(ReduceOp::Max, axis, keepdim)?))
}

/// Position of the smallest element along `axis`, as [`argmax`].
pub fn argmin(x: &Tensor, axis: usize, keepdim: bool) -> Result<Tensor> {
    let _op = context::op("argmin");
    Ok(Tensor::from_array(x.array().extremum_position(ReduceOp::Min, axis, keepdim)?))
}

fn selecting_reduction(x: &Tensor, op: ReduceOp, axis: usize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let max = op == ReduceOp::Max;
    let _op = context::op(if max { "max" } else { "min" });
    let (y, indices) = x.array().extremum(op, axis, keepdim)?;
    let y = record(y, &[x], |saved| {
        saved.save("indices", &indices)?;
        Ok(Box::new(SelectingBackward { max, axis, dims: x.dims().into() }))
    })?;
    Ok((y, Tensor::from_array(indices)))
}

/// Backward of a maximum or minimum along one axis: the chosen element gets the gradient, the others get 0.
struct SelectingBackward {
    max: bool,
    axis: usize,
    dims: Dims,
}

impl Function for SelectingBackward {
    fn name(&self) -> &'static str {
        if self.max { "MaxBackward0" } else { "MinBackward0" }
    }

    /// A max pooling whose only window is the axis chooses the same elements, so that its gradient is this one. Its positions are along the
    /// last axis; views move another axis there and back.
    fn backward(&self, mut grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let indices = saved.get(0)?;
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let n = self.dims[self.axis];
        let groups = indices.numel();
        let mut dims = self.dims.clone();
        dims.remove(self.axis);
        dims.push(n);
        let out = context::within("value_selecting_reduction_backward>zeros", || {
            Array::empty(grad.device(), &dims, grad.dtype())
        })?;
        let grad = grad.contiguous()?.view(&[groups, 1, 1, 1])?;
        let indices = indices.view(&[groups, 1, 1, 1])?;
        out.device().launch(Pool2dGrad {
            op: PoolOp::Max,
            geometry: Pool2dGeometry { window: [1, n], stride: [1, 1], padding: [0, 0] },
            grad: grad.operand(),
            indices: Some(indices.operand()),
            out: out.view(&[groups, 1, 1, n])?.operand(),
        })?;
        let last = dims.len() - 1;
        let mut order: Dims = (0..last).collect();
        order.insert(self.axis, last);
        Ok(smallvec![Some(out.permute(&order)?)])
    }
}

/// Largest elements along `axes`. Equal ones share the gradient. Saves input and result.
pub fn amax(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    outermost(x, ReduceOp::Max, axes, keepdim)
}

/// Smallest elements along `axes`, as [`amax`].
pub fn amin(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    outermost(x, ReduceOp::Min, axes, keepdim)
}

fn outermost(x: &Tensor, op: ReduceOp, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    let (name, node) = if op == ReduceOp::Max { ("amax", "AmaxBackward0") } else { ("amin", "AminBackward0") };
    let _op = context::op(name);
    let y = x.array().reduce(op, axes, keepdim)?;
    record(y.clone(), &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("result", &y)?;
        Ok(Box::new(AmaxBackward { node, kept: kept_dims(x.dims(), axes) }))
    })
}

struct AmaxBackward {
    node: &'static str,
    kept: Dims,
}

impl Function for AmaxBackward {
    fn name(&self) -> &'static str {
        self.node
    }

    /// `grad / count · (self == result)`. PyTorch counts the mask in i64, through a copy of it. Here the mask is counted in the gradient's
    /// type, in the memory of the result.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, y) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let torch = x.device().profile().torch_temporaries;
        let mask = context::within("eq", || x.binary(BinaryOp::Eq, &y.view(&self.kept)?))?;
        let counted = || context::within("sum", || counted_in_i64(&mask, &self.kept));
        let _count = if torch { Some(counted()?) } else { None };
        let share = context::within("div", || Array::empty(x.device(), &self.kept, x.dtype()))?;
        let layouts = [share.layout(), x.layout()];
        let out = context::within("mul", || Array::empty_for(x.device(), x.dims(), &layouts, x.dtype()))?;
        out.copy_(&mask)?;
        out.reduce_axes_into(ReduceOp::Sum, &share)?;
        grad.view(&self.kept)?.binary_into(BinaryOp::Div, &share, &share)?;
        out.binary_(BinaryOp::Mul, &share)?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// The largest of all elements, a scalar. Equal ones share the gradient. Saves input and result.
pub fn max_all(x: &Tensor) -> Result<Tensor> {
    extreme(x, ReduceOp::Max)
}

/// The smallest of all elements, as [`max_all`].
pub fn min_all(x: &Tensor) -> Result<Tensor> {
    extreme(x, ReduceOp::Min)
}

fn extreme(x: &Tensor, op: ReduceOp) -> Result<Tensor> {
    let (name, node) = if op == ReduceOp::Max { ("max", "MaxBackward1") } else { ("min", "MinBackward1") };
    let _op = context::op(name);
    let y = x.array().reduce(op, &[], false)?;
    record(y.clone(), &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("result", &y)?;
        Ok(Box::new(ExtremeBackward { node }))
    })
}

struct ExtremeBackward {
    node: &'static str,
}

impl Function for ExtremeBackward {
    fn name(&self) -> &'static str {
        self.node
    }

    /// `grad / count · mask`, where the mask has the elements that equal the result, or are NaN if it is (`evenly_distribute_backward`).
    /// PyTorch holds the masks of NaN of result and input, too, until the end; here a NaN has no equal, and gets no gradient.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, y) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mask = context::within("eq", || x.binary(BinaryOp::Eq, &y))?;
        let is_nan = |of: &Array| context::within("isnan", || Array::empty(x.device(), of.dims(), DType::Bool));
        let torch = x.device().profile().torch_temporaries;
        let nans = if torch { Some((is_nan(&y)?, is_nan(&x)?)) } else { None };
        let counted = || context::within("sum", || counted_in_i64(&mask, &[]));
        let count = if torch { Some(counted()?) } else { None };
        let kept = kept_dims(x.dims(), &[]);
        let share = context::within("div", || Array::empty(x.device(), &kept, x.dtype()))?;
        let out = context::within("mul", || Array::empty_for(x.device(), x.dims(), &[x.layout()], x.dtype()))?;
        out.copy_(&mask)?;
        out.reduce_axes_into(ReduceOp::Sum, &share)?;
        grad.view(&kept)?.binary_into(BinaryOp::Div, &share, &share)?;
        out.binary_(BinaryOp::Mul, &share)?;
        drop((share, count));
        if let Some((of_result, of_input)) = nans {
            drop(of_input);
            drop(of_result);
        }
        drop(mask);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// Allocates the memory of PyTorch's sum of a mask: an i64 for each group and, during the sum, the mask as i64.
fn counted_in_i64(mask: &Array, kept: &[usize]) -> Result<Array> {
    let count = Array::empty(mask.device(), kept, DType::I64)?;
    let wide = context::within("_to_copy", || Array::empty(mask.device(), mask.dims(), DType::I64))?;
    drop(wide);
    Ok(count)
}

/// Euclidean norm of all elements, a scalar. Saves input and result. Its gradient at 0 is 0.
pub fn norm(x: &Tensor) -> Result<Tensor> {
    norm_axes(x, &[], false)
}

/// Euclidean norm over `axes`, which stay with size 1 if `keepdim`. No axes means all axes. Saves input and result. Its gradient at 0 is 0.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn norm_axes(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    let _op = context::op("linalg_vector_norm");
    let y = x.array().reduce_as(full_type(x.dtype()), ReduceOp::SumSquares, axes, keepdim)?;
    y.unary_(UnaryOp::Sqrt)?;
    record(y.clone(), &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("result", &y)?;
        Ok(Box::new(NormBackward { kept: kept_dims(x.dims(), axes) }))
    })
}

struct NormBackward {
    kept: Dims,
}

impl Function for NormBackward {
    fn name(&self) -> &'static str {
        "LinalgVectorNormBackward0"
    }

    /// `grad · (self / result)`, with zeros where the result is 0. Under autocast result and gradient are scalars in float32. They take part in
    /// the type of `self`, as in PyTorch, where a scalar does not promote.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, y) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let (y, grad) = if self.kept.iter().all(|&size| size == 1) {
            (y, grad.clone())
        } else {
            (y.view(&self.kept)?, grad.reshape(&self.kept)?)
        };
        let direction = context::within("div", || with_scalar(&x, BinaryOp::Div, &y))?;
        let is_zero = context::within("eq", || y.unary(UnaryOp::IsZero))?;
        direction.masked_fill_(&is_zero, 0.0)?;
        let out = context::within("mul", || with_scalar(&direction, BinaryOp::Mul, &grad))?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// `op(x, scalar)` in the type of `x`, without a temporary: the scalar is repeated into the result, which then takes part in place.
fn with_scalar(x: &Array, op: BinaryOp, scalar: &Array) -> Result<Array> {
    if x.dtype() == scalar.dtype() {
        return x.binary(op, scalar);
    }
    let out = x.empty_like()?;
    out.copy_(scalar)?;
    x.binary_into(op, &out, &out)?;
    Ok(out)
}

/// Returns [`Error::Shape`] unless `axis` is one of `x`'s axes.
pub(in crate::ops) fn check_axis(op: &'static str, x: &Tensor, axis: usize) -> Result<()> {
    if axis < x.rank() { Ok(()) } else { Err(Error::shape(op, format!("axis {axis} of {:?}", x.dims()))) }
}
