//! Joins several tensors into one, and splits one into several.

use smallvec::{SmallVec, smallvec};

use super::view::Dims;
use crate::array::{Array, common_type};
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record, record_many};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::pointwise::binary::{Like, unbroadcast};
use crate::ops::reduce::sums_and_extremes::check_axis;

/// Joins the tensors along `axis`, in their common type, without a separate conversion. Saves nothing. The gradients are views of the incoming
/// one, converted if a tensor has another type.
///
/// # Errors
/// [`Error::Shape`] if there are no tensors or their other sizes differ, [`Error::DType`] for types without a common type; errors of the
/// device.
pub fn cat(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    let _op = context::op("cat");
    let arrays: SmallVec<[&Array; 8]> = parts.iter().map(|part| part.array()).collect();
    let y = Array::cat(&arrays, axis)?;
    record(y, parts, |_| {
        Ok(Box::new(CatBackward { axis, parts: parts.iter().map(|part| Like::from_tensor(part)).collect() }))
    })
}

struct CatBackward {
    axis: usize,
    parts: Vec<Like>,
}

impl Function for CatBackward {
    fn name(&self) -> &'static str {
        "CatBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut start = 0;
        let mut part = |(i, like): (usize, &Like)| {
            let len = like.dims()[self.axis];
            let part = needs.input(i).then(|| grad.narrow(self.axis, start, len).map(Array::keeping_base)).transpose();
            start += len;
            part
        };
        let mut out: Grads = self.parts.iter().enumerate().map(&mut part).collect::<Result<_>>()?;
        unbroadcast(&mut out, &self.parts)?;
        Ok(out)
    }
}

/// Joins tensors of the same sizes along a new dimension before `axis`. Saves nothing; the gradients are views of the incoming one.
pub fn stack(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::shape("stack", "of nothing")) };
    if axis > first.rank() {
        return Err(Error::shape("stack", format!("axis {axis} of {:?}", first.dims())));
    }
    let _op = context::op("stack>cat");
    let mut dims: Dims = first.dims().into();
    dims.insert(axis, parts.len());
    let dtype = common_type("stack", parts.iter().map(|part| part.array()))?;
    for part in parts {
        if part.dims() != first.dims() {
            return Err(Error::shape("stack", format!("{:?} and {:?}", first.dims(), part.dims())));
        }
    }
    let y = Array::empty(first.device(), &dims, dtype)?;
    for (i, part) in parts.iter().enumerate() {
        y.select(axis, i)?.copy_(part.array())?;
    }
    record(y, parts, |_| {
        Ok(Box::new(StackBackward { axis, parts: parts.iter().map(|part| Like::from_tensor(part)).collect() }))
    })
}

struct StackBackward {
    axis: usize,
    parts: Vec<Like>,
}

impl Function for StackBackward {
    fn name(&self) -> &'static str {
        "StackBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let part = |i| needs.input(i).then(|| grad.select(self.axis, i).map(Array::keeping_base)).transpose();
        let mut out: Grads = (0..self.parts.len()).map(part).collect::<Result<_>>()?;
        unbroadcast(&mut out, &self.parts)?;
        Ok(out)
    }
}

/// Returns views of `size` indices of dimension `axis` each; the last one has the remaining indices. The gradient is one concatenation, with
/// zeros for a part from which nothing was computed.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist or a size of 0.
pub fn split(x: &Tensor, size: usize, axis: usize) -> Result<Vec<Tensor>> {
    check_axis("split", x, axis)?;
    if size == 0 {
        return Err(Error::shape("split", "into parts of size 0"));
    }
    let n = x.dims()[axis];
    let sizes: SmallVec<[usize; 8]> = (0..n.div_ceil(size).max(1)).map(|i| size.min(n - i * size)).collect();
    split_into("SplitBackward0", x, sizes, axis)
}

/// Returns at most `chunks` views along `axis`, of equal size except the last: [`split`] by `⌈n/chunks⌉`.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist or no chunks.
pub fn chunk(x: &Tensor, chunks: usize, axis: usize) -> Result<Vec<Tensor>> {
    check_axis("chunk", x, axis)?;
    if chunks == 0 {
        return Err(Error::shape("chunk", "into 0 chunks"));
    }
    split(x, x.dims()[axis].div_ceil(chunks).max(1), axis)
}

/// Returns views of `sizes[i]` indices of dimension `axis` each, one after the other. The gradient is as [`split`]'s.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist or sizes that do not add up to it.
pub fn split_with_sizes(x: &Tensor, sizes: &[usize], axis: usize) -> Result<Vec<Tensor>> {
    check_axis("split", x, axis)?;
    if sizes.iter().sum::<usize>() != x.dims()[axis] {
        return Err(Error::shape("split", format!("{sizes:?} of axis {axis} of {:?}", x.dims())));
    }
    split_into("SplitWithSizesBackward0", x, sizes.into(), axis)
}

/// Returns a view of each index of dimension `axis`, which disappears. The gradient stacks the parts' gradients, with a repeated zero for a part from
/// which nothing was computed.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist.
pub fn unbind(x: &Tensor, axis: usize) -> Result<Vec<Tensor>> {
    check_axis("unbind", x, axis)?;
    let parts = (0..x.dims()[axis]).map(|i| x.array().select(axis, i)).collect::<Result<Vec<_>>>()?;
    record_many(parts, &[x], |_| Ok(Box::new(UnbindBackward { axis, dims: x.dims().into() })))
}

struct UnbindBackward {
    axis: usize,
    dims: Dims,
}

impl Function for UnbindBackward {
    fn name(&self) -> &'static str {
        "UnbindBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(first) = grads.iter().flatten().next() else { return Ok(Grads::new()) };
        let mut dims = self.dims.clone();
        dims[self.axis] = 1;
        let part = |grad: &Option<Array>| match grad {
            Some(grad) => grad.unsqueeze(self.axis),
            None => context::within("zeros", || Array::zeros(first.device(), &[], first.dtype()))?.broadcast_to(&dims),
        };
        let parts: SmallVec<[Array; 4]> = grads.iter().map(part).collect::<Result<_>>()?;
        let _op = context::op("stack>cat");
        Ok(smallvec![Some(Array::cat(&parts, self.axis)?)])
    }
}

fn split_into(name: &'static str, x: &Tensor, sizes: SmallVec<[usize; 8]>, axis: usize) -> Result<Vec<Tensor>> {
    let mut parts = Vec::with_capacity(sizes.len());
    let mut start = 0;
    for &len in &sizes {
        parts.push(x.array().narrow(axis, start, len)?);
        start += len;
    }
    record_many(parts, &[x], |_| Ok(Box::new(SplitBackward { name, axis, sizes, dims: x.dims().into() })))
}

struct SplitBackward {
    name: &'static str,
    axis: usize,
    /// Size of each part along the axis.
    sizes: SmallVec<[usize; 8]>,
    dims: Dims,
}

impl Function for SplitBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(first) = grads.iter().flatten().next() else { return Ok(Grads::new()) };
        let part = |(grad, &len): (&Option<Array>, &usize)| match grad {
            Some(grad) => Ok(grad.clone()),
            None => {
                let mut dims = self.dims.clone();
                dims[self.axis] = len;
                context::within("zeros", || Array::zeros(first.device(), &dims, first.dtype()))
            }
        };
        let parts: SmallVec<[Array; 4]> = grads.iter().zip(&self.sizes).map(part).collect::<Result<_>>()?;
        let _op = context::op("cat");
        Ok(smallvec![Some(Array::cat(&parts, self.axis)?)])
    }
}
