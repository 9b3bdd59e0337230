//! Softmax and log-softmax. Both save their result.

use smallvec::smallvec;

use super::autocast::{full, full_type};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{Softmax, SoftmaxGrad};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// `eˣ / Σ eˣ` over `axis`. Saves its result.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; those of the device.
pub fn softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    let _op = context::op("softmax");
    let x = &widened(x)?;
    over_axis("_softmax", x, axis, false, full_type(x.dtype()))
}

/// The logarithm of [`softmax`], without its overflow. Saves its result.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    let _op = context::op("log_softmax");
    let x = &widened(x)?;
    over_axis("_log_softmax", x, axis, true, full_type(x.dtype()))
}

/// [`log_softmax`] in the type of `x`, also under autocast: what cross entropy asks for.
pub(super) fn in_own_type(x: &Tensor, axis: usize) -> Result<Tensor> {
    let _op = context::op("log_softmax");
    over_axis("_log_softmax", x, axis, true, x.dtype())
}

/// What autocast makes of an operand: the kernel reads float16 and writes float32, bfloat16 is converted first, as in PyTorch.
fn widened(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::F16 { Ok(x.clone()) } else { full(x) }
}

/// The result has the type `to`.
fn over_axis(op: &'static str, x: &Tensor, axis: usize, log: bool, to: DType) -> Result<Tensor> {
    let last = x.rank().checked_sub(1).filter(|_| axis < x.rank());
    let last = last.ok_or_else(|| Error::shape(op, format!("axis {axis} of {:?}", x.dims())))?;
    if axis != last {
        // Rows are contiguous in the kernels: bring the axis to the end and back.
        let y = over_axis(op, &super::shape::transpose(x, axis, last)?, last, log, to)?;
        return super::shape::transpose(&y, axis, last);
    }
    let _op = context::op(op);
    let input = x.array().contiguous()?;
    let y = Array::empty(x.device(), x.dims(), to)?;
    let rows = |a: &Array| a.view(&row_dims(x.dims())).map(|a| a.operand());
    x.device().launch(Softmax { log, x: rows(&input)?, out: rows(&y)? })?;
    record(y.clone(), &[x], |saved| {
        saved.save("result", &y)?;
        Ok(Box::new(SoftmaxBackward { log, input: x.dtype() }))
    })
}

/// [`softmax`] over the last axis in which a row of −∞ would become zeros (PyTorch's `_safe_softmax`), which the caller excludes: what remains of it
/// is a mask of the scores' size, one of the rows', and a second result that is the one kept.
///
/// # Errors
/// As [`softmax`].
pub(super) fn safe_softmax(x: &Tensor) -> Result<Tensor> {
    let _op = context::op("_safe_softmax");
    let input = x.array().contiguous()?;
    let device = x.device();
    let y = {
        let _plain = input.empty_like()?;
        let _masked = Array::empty(device, x.dims(), DType::Bool)?;
        let rows = row_dims(x.dims())[0];
        let _masked_rows = Array::empty(device, &[rows], DType::Bool)?;
        let _zero = Array::empty(device, &[], x.dtype())?;
        input.empty_like()?
    };
    let rows = |a: &Array| a.view(&row_dims(x.dims())).map(|a| a.operand());
    device.launch(Softmax { log: false, x: rows(&input)?, out: rows(&y)? })?;
    record(y.clone(), &[x], |saved| {
        saved.save("result", &y)?;
        Ok(Box::new(SoftmaxBackward { log: false, input: x.dtype() }))
    })
}

/// `[rows, n]` of a shape whose last size is n.
fn row_dims(dims: &[usize]) -> [usize; 2] {
    let n = dims.last().copied().unwrap_or(1);
    [dims[..dims.len().saturating_sub(1)].iter().product(), n]
}

struct SoftmaxBackward {
    log: bool,
    /// Type of the input, and so of its gradient.
    input: DType,
}

impl Function for SoftmaxBackward {
    fn name(&self) -> &'static str {
        if self.log { "LogSoftmaxBackward0" } else { "SoftmaxBackward0" }
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let y = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(if self.log { "_log_softmax_backward_data" } else { "_softmax_backward_data" });
        let grad = grad.contiguous()?;
        let out = Array::empty(y.device(), y.dims(), self.input)?;
        // PyTorch computes grad·y into a temporary before the row sums of softmax.
        let product = if !self.log && y.device().profile().torch_temporaries {
            let _op = context::op("mul");
            Some(y.empty_like()?)
        } else {
            None
        };
        let rows = |a: &Array| a.view(&row_dims(y.dims())).map(|a| a.operand());
        let workspace = product.as_ref().map(Array::operand);
        let (y_rows, grad_rows, out_rows) = (rows(&y)?, rows(&grad)?, rows(&out)?);
        y.device().launch(SoftmaxGrad { log: self.log, y: y_rows, grad: grad_rows, out: out_rows, workspace })?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
