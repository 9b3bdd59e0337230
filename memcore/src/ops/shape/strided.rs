//! Views that walk through memory in steps of their own: diagonals and sliding windows.

use smallvec::smallvec;

use super::view::Dims;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::on_host;

/// The elements of two axes at equal places, as a view: the first `min` of both sizes from `offset` columns on, or `-offset` rows. They become
/// the last axis. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for axes that do not exist or are the same one, or an offset beyond the matrix.
pub fn diagonal(x: &Tensor, offset: i64, rows: usize, columns: usize) -> Result<Tensor> {
    let _op = context::op("diagonal");
    let y = diagonal_of(x.array(), offset, rows, columns)?;
    record(y, &[x], |_| Ok(Box::new(DiagonalBackward { dims: x.dims().into(), offset, rows, columns })))
}

fn diagonal_of(x: &Array, offset: i64, rows: usize, columns: usize) -> Result<Array> {
    let (dims, strides) = (x.dims(), x.layout().strides().to_vec());
    let (Some(&height), Some(&width)) = (dims.get(rows).filter(|_| rows != columns), dims.get(columns)) else {
        return Err(Error::shape("diagonal", format!("axes {rows} and {columns} of {dims:?}")));
    };
    let (down, right) = (offset.min(0).unsigned_abs() as usize, offset.max(0) as usize);
    let (Some(height), Some(width)) = (height.checked_sub(down), width.checked_sub(right)) else {
        return Err(Error::shape("diagonal", format!("offset {offset} in {dims:?}")));
    };
    let others = (0..dims.len()).filter(|axis| *axis != rows && *axis != columns);
    let (mut sizes, mut steps) = (Vec::new(), Vec::new());
    for axis in others {
        sizes.push(dims[axis]);
        steps.push(strides[axis]);
    }
    sizes.push(height.min(width));
    steps.push(strides[rows] + strides[columns]);
    x.part(&Layout::strided(&sizes, &steps)?, down * strides[rows] + right * strides[columns])
}

struct DiagonalBackward {
    dims: Dims,
    offset: i64,
    rows: usize,
    columns: usize,
}

impl Function for DiagonalBackward {
    fn name(&self) -> &'static str {
        "DiagonalBackward0"
    }

    /// Zeros, with the gradient on the diagonal.
    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let _op = context::op("diagonal_backward");
        let out = context::within("zeros", || Array::zeros(grad.device(), &self.dims, grad.dtype()))?;
        diagonal_of(&out, self.offset, self.rows, self.columns)?.copy_(&grad)?;
        Ok(smallvec![Some(out)])
    }
}

/// Zeros with the last axis of `x` on the diagonal of two new axes, `offset` columns from the middle (or `-offset` rows). Saves nothing; the gradient is
/// a view.
///
/// # Errors
/// [`Error::Shape`] for a number, or axes that do not exist or are the same one; errors of the device.
pub fn diag_embed(x: &Tensor, offset: i64, rows: usize, columns: usize) -> Result<Tensor> {
    let wrong = || Error::shape("diag_embed", format!("{:?} into axes {rows} and {columns}", x.dims()));
    let (&last, others) = x.dims().split_last().ok_or_else(wrong)?;
    if rows == columns || rows.max(columns) > x.rank() {
        return Err(wrong());
    }
    let size = last + usize::try_from(offset.unsigned_abs()).map_err(|_| wrong())?;
    let mut dims: Dims = others.into();
    for axis in [rows.min(columns), rows.max(columns)] {
        dims.insert(axis, size);
    }
    let y = context::within("diag_embed>zeros", || Array::zeros(x.device(), &dims, x.dtype()))?;
    diagonal_of(&y, offset, rows, columns)?.copy_(x.array())?;
    record(y, &[x], |_| Ok(Box::new(DiagEmbedBackward { offset, rows, columns })))
}

struct DiagEmbedBackward {
    offset: i64,
    rows: usize,
    columns: usize,
}

impl Function for DiagEmbedBackward {
    fn name(&self) -> &'static str {
        "DiagEmbedBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(diagonal_of(grad, self.offset, self.rows, self.columns)?.keeping_base())])
    }
}

/// Windows of `size` elements along an axis, one every `step` elements, as a view: the axis gets their number, and a last axis their elements.
/// Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist, a window larger than it, or a step of 0.
pub fn unfold_axis(x: &Tensor, axis: usize, size: usize, step: usize) -> Result<Tensor> {
    let _op = context::op("unfold");
    let wrong =
        || Error::shape("unfold", format!("windows of {size}, {step} apart, along axis {axis} of {:?}", x.dims()));
    let free = x.dims().get(axis).and_then(|len| len.checked_sub(size)).filter(|_| step > 0).ok_or_else(wrong)?;
    let (mut dims, mut strides) = (x.dims().to_vec(), x.array().layout().strides().to_vec());
    dims[axis] = free / step + 1;
    dims.push(size);
    strides.push(strides[axis]);
    strides[axis] *= step;
    let y = x.array().part(&Layout::strided(&dims, &strides)?, 0)?;
    record(y, &[x], |_| Ok(Box::new(UnfoldBackward { dims: x.dims().into(), axis, size, step })))
}

struct UnfoldBackward {
    dims: Dims,
    axis: usize,
    size: usize,
    step: usize,
}

impl Function for UnfoldBackward {
    fn name(&self) -> &'static str {
        "UnfoldBackward0"
    }

    /// Sums the gradients of an element in all windows. For windows that overlap PyTorch makes the numbers of the places along the axis.
    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let _op = context::op("unfold_backward");
        let out = context::within("zeros", || Array::zeros(grad.device(), &self.dims, grad.dtype()))?;
        if self.step < self.size && grad.device().profile().torch_temporaries {
            context::within("arange", || Array::empty(grad.device(), &[self.dims[self.axis]], DType::I64))?;
        }
        let (windows, inner) = (grad.dims()[self.axis], self.dims[self.axis + 1..].iter().product::<usize>());
        on_host::apply_transposed(&out, &grad, &|i, source| {
            let (place, rest) = (i % self.size, i / self.size);
            let (at, rest) = (rest % inner, rest / inner);
            let (window, outer) = (rest % windows, rest / windows);
            source((outer * self.dims[self.axis] + window * self.step + place) * inner + at, 1.0);
        })?;
        Ok(smallvec![Some(out)])
    }
}
