//! Views and copies: other sizes, other order, parts, repetitions. Views share memory. Nothing is saved except sizes.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::error::{Error, Result};

pub(in crate::ops) type Dims = SmallVec<[usize; 6]>;

/// Returns the same elements with other sizes, without a copy.
///
/// # Errors
/// [`Error::Shape`] if the counts differ or the strides do not allow a view.
pub fn view(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let y = x.array().view(dims)?;
    record(y, &[x], |_| Ok(Box::new(ViewBackward { name: "ViewBackward0", dims: x.dims().into() })))
}

/// As [`view`], for a result that nothing else holds: the end of a product in PyTorch.
pub(in crate::ops) fn unsafe_view(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let y = x.array().view(dims)?;
    record(y, &[x], |_| Ok(Box::new(ViewBackward { name: "UnsafeViewBackward0", dims: x.dims().into() })))
}

/// Returns the same elements with other sizes. Copies if a view is not possible.
///
/// # Errors
/// [`Error::Shape`] if the counts differ; errors of the device.
pub fn reshape(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    match x.array().layout().viewed(dims) {
        Some(_) => view(x, dims),
        None => {
            let _op = context::op("reshape>clone");
            let y = x.array().reshape(dims)?;
            record(y, &[x], |_| Ok(Box::new(ViewBackward { name: "UnsafeViewBackward0", dims: x.dims().into() })))
        }
    }
}

/// Flattens the dimensions `start..` into one.
pub fn flatten(x: &Tensor, start: usize) -> Result<Tensor> {
    if start >= x.rank() {
        return Err(Error::shape("flatten", format!("from axis {start} of {:?}", x.dims())));
    }
    let mut dims: Dims = x.dims()[..start].into();
    dims.push(x.dims()[start..].iter().product());
    reshape(x, &dims)
}

struct ViewBackward {
    name: &'static str,
    dims: Dims,
}

impl Function for ViewBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let _op = context::op("reshape>clone");
        let out = grad.reshape(&self.dims)?;
        let is_view = std::sync::Arc::ptr_eq(out.storage(), grad.storage());
        Ok(smallvec![Some(if is_view { out.keeping_base() } else { out })])
    }
}

/// Transposes a matrix, as a view.
///
/// # Errors
/// [`Error::Shape`] for anything but two dimensions.
pub fn t(x: &Tensor) -> Result<Tensor> {
    if x.rank() != 2 {
        return Err(Error::shape("t", format!("{:?} is not a matrix", x.dims())));
    }
    let y = x.array().t()?;
    record(y, &[x], |_| Ok(Box::new(TransposeBackward { name: "TBackward0", axes: [0, 1] })))
}

/// Exchanges two dimensions, as a view.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist.
pub fn transpose(x: &Tensor, a: usize, b: usize) -> Result<Tensor> {
    let y = x.array().transpose(a, b)?;
    record(y, &[x], |_| Ok(Box::new(TransposeBackward { name: "TransposeBackward0", axes: [a, b] })))
}

struct TransposeBackward {
    name: &'static str,
    axes: [usize; 2],
}

impl Function for TransposeBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        Ok(smallvec![Some(grad.transpose(self.axes[0], self.axes[1])?.keeping_base())])
    }
}

/// Returns the dimensions in another order, as a view.
///
/// # Errors
/// [`Error::Shape`] if `axes` is not a permutation.
pub fn permute(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let y = x.array().permute(axes)?;
    record(y, &[x], |_| {
        let mut inverse: Dims = smallvec![0; axes.len()];
        for (i, &axis) in axes.iter().enumerate() {
            inverse[axis] = i;
        }
        Ok(Box::new(PermuteBackward { inverse }))
    })
}

struct PermuteBackward {
    inverse: Dims,
}

impl Function for PermuteBackward {
    fn name(&self) -> &'static str {
        "PermuteBackward0"
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        Ok(smallvec![Some(grad.permute(&self.inverse)?.keeping_base())])
    }
}

/// Returns `len` indices of dimension `axis`, starting at `start`, as a view. Its gradient is a zero tensor of the whole size with the part
/// filled in.
///
/// # Errors
/// [`Error::Shape`] if they do not exist.
pub fn narrow(x: &Tensor, axis: usize, start: usize, len: usize) -> Result<Tensor> {
    let y = x.array().narrow(axis, start, len)?;
    record(y, &[x], |_| Ok(Box::new(SliceBackward { dims: x.dims().into(), axis, start, step: 1, squeezed: false })))
}

/// [`narrow`] with gaps: every `step`-th of the `len` indices starting at `start`, as a view.
///
/// # Errors
/// As [`narrow`], and for a step of 0.
pub fn slice(x: &Tensor, axis: usize, [start, len, step]: [usize; 3]) -> Result<Tensor> {
    let y = x.array().narrow(axis, start, len)?.every(axis, step)?;
    record(y, &[x], |_| Ok(Box::new(SliceBackward { dims: x.dims().into(), axis, start, step, squeezed: false })))
}

/// Returns the tensor itself as a view, with a node of its own in the history, as slicing all of it does in PyTorch.
///
/// # Errors
/// None. The result type is that of the other views.
pub fn alias(x: &Tensor) -> Result<Tensor> {
    record(x.array().clone(), &[x], |_| Ok(Box::new(AliasBackward)))
}

struct AliasBackward;

impl Function for AliasBackward {
    fn name(&self) -> &'static str {
        "AliasBackward0"
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        Ok(smallvec![grads[0].take()])
    }
}

/// Returns index `index` of dimension `axis`, which disappears, as a view.
///
/// # Errors
/// [`Error::Shape`] if it does not exist.
pub fn select(x: &Tensor, axis: usize, index: usize) -> Result<Tensor> {
    let y = x.array().select(axis, index)?;
    record(y, &[x], |_| {
        Ok(Box::new(SliceBackward { dims: x.dims().into(), axis, start: index, step: 1, squeezed: true }))
    })
}

struct SliceBackward {
    dims: Dims,
    axis: usize,
    start: usize,
    step: usize,
    squeezed: bool,
}

impl Function for SliceBackward {
    fn name(&self) -> &'static str {
        if self.squeezed { "SelectBackward0" } else { "SliceBackward0" }
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(mut grad) = grads[0].take() else { return Ok(Grads::new()) };
        if self.squeezed {
            grad = grad.unsqueeze(self.axis)?;
        }
        let op = if self.squeezed { "select_backward" } else { "slice_backward" };
        let _op = context::op(op);
        let out = context::within("zeros", || Array::zeros(grad.device(), &self.dims, grad.dtype()))?;
        let len = (grad.dims()[self.axis] * self.step).min(self.dims[self.axis] - self.start);
        out.narrow(self.axis, self.start, len)?.every(self.axis, self.step)?.copy_(&grad)?;
        Ok(smallvec![Some(out)])
    }
}

/// Adds a dimension of size 1 before `axis`, as a view.
///
/// # Errors
/// [`Error::Shape`] for an axis beyond the last, or too many dimensions.
pub fn unsqueeze(x: &Tensor, axis: usize) -> Result<Tensor> {
    let y = x.array().unsqueeze(axis)?;
    record(y, &[x], |_| Ok(Box::new(SqueezeBackward { name: "UnsqueezeBackward0", axis })))
}

/// Removes dimension `axis`, whose size must be 1, as a view.
///
/// # Errors
/// [`Error::Shape`] if it is not.
pub fn squeeze(x: &Tensor, axis: usize) -> Result<Tensor> {
    let y = x.array().squeeze(axis)?;
    record(y, &[x], |_| Ok(Box::new(SqueezeBackward { name: "SqueezeBackward1", axis })))
}

/// Backward of [`squeeze`] and of [`unsqueeze`]: each is the other's inverse.
struct SqueezeBackward {
    name: &'static str,
    axis: usize,
}

impl Function for SqueezeBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let unsqueezed = self.name == "UnsqueezeBackward0";
        let out = if unsqueezed { grad.squeeze(self.axis)? } else { grad.unsqueeze(self.axis)? };
        Ok(smallvec![Some(out.keeping_base())])
    }
}

/// Repeats the elements to larger sizes (where a size is 1, or in front), as a view. Its gradient is summed back.
///
/// # Errors
/// [`Error::Shape`] if the sizes do not fit.
pub fn expand(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let y = x.array().broadcast_to(dims)?;
    record(y, &[x], |_| Ok(Box::new(ExpandBackward { dims: x.dims().into() })))
}

struct ExpandBackward {
    dims: Dims,
}

impl Function for ExpandBackward {
    fn name(&self) -> &'static str {
        "ExpandBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("sum");
        Ok(smallvec![Some(grad.sum_to(&self.dims)?)])
    }
}

/// Repeats the whole tensor `times[i]` times along each dimension, in a copy. Its gradient is summed back.
///
/// # Errors
/// [`Error::Shape`] if there is not one number per dimension, or if more than [`MAX_RANK`](crate::MAX_RANK) sizes and numbers are above 1;
/// errors of the device.
pub fn repeat(x: &Tensor, times: &[usize]) -> Result<Tensor> {
    if times.len() != x.rank() {
        return Err(Error::shape("repeat", format!("{times:?} times of {:?}", x.dims())));
    }
    let _op = context::op("repeat");
    // Each repeated dimension becomes a number and a size: `[n] → [times, n] → [times·n]`.
    let (mut source, mut split, mut axes, mut dims) = (Dims::new(), Dims::new(), Dims::new(), Dims::new());
    for (&n, &times) in x.dims().iter().zip(times) {
        if times != 1 {
            axes.push(split.len());
            split.push(times);
            source.push(1);
        }
        split.push(n);
        source.push(n);
        dims.push(times * n);
    }
    let y = Array::empty(x.device(), &dims, x.dtype())?;
    y.view(&split)?.copy_(&x.array().reshape(&source)?)?;
    record(y, &[x], |_| Ok(Box::new(RepeatBackward { split, axes, dims: x.dims().into() })))
}

struct RepeatBackward {
    /// Sizes of the result, with numbers and sizes apart.
    split: Dims,
    /// Axes of `split` that are numbers of repetitions.
    axes: Dims,
    dims: Dims,
}

impl Function for RepeatBackward {
    fn name(&self) -> &'static str {
        "RepeatBackward0"
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        if self.axes.is_empty() {
            return Ok(smallvec![Some(grad)]);
        }
        let grad = grad.reshape(&self.split)?;
        let _op = context::op("sum");
        let summed = grad.reduce(ReduceOp::Sum, &self.axes, false)?;
        Ok(smallvec![Some(summed.view(&self.dims)?)])
    }
}

/// Returns a copy with memory of its own.
pub fn clone(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("clone");
    let y = x.array().copied()?;
    record(y, &[x], |_| Ok(Box::new(CloneBackward)))
}

/// Returns the same tensor if it is contiguous, else a contiguous copy.
pub fn contiguous(x: &Tensor) -> Result<Tensor> {
    if x.array().layout().is_contiguous() {
        return Ok(x.clone());
    }
    let _op = context::op("contiguous");
    clone(x)
}

struct CloneBackward;

impl Function for CloneBackward {
    fn name(&self) -> &'static str {
        "CloneBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        Ok(grads)
    }
}
