//! Softmax and log-softmax. Both save their result.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::Operand;
use crate::backend::kernel::{Softmax, SoftmaxGrad};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::{full, full_type};
use crate::ops::pointwise::binary::added_in_place;

/// `eˣ / Σ eˣ` over `axis`. Saves its result.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    let _op = context::op("softmax");
    let x = &widened(x)?;
    over_axis("_softmax", x, axis, false, full_type(x.dtype()))
}

/// Logarithm of [`softmax`], without its overflow. Saves its result.
pub fn log_softmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    let _op = context::op("log_softmax");
    let x = &widened(x)?;
    over_axis("_log_softmax", x, axis, true, full_type(x.dtype()))
}

/// [`softmax`] in the type `dtype`: `softmax(x, axis, dtype=…)`. From float16 to float32 it is one kernel; every other input is converted
/// first.
pub fn softmax_as(x: &Tensor, axis: usize, dtype: DType) -> Result<Tensor> {
    let _op = context::op("softmax");
    let x = &converted(x, dtype)?;
    over_axis("_softmax", x, axis, false, dtype)
}

/// Logarithm of [`softmax_as`].
pub fn log_softmax_as(x: &Tensor, axis: usize, dtype: DType) -> Result<Tensor> {
    let _op = context::op("log_softmax");
    let x = &converted(x, dtype)?;
    over_axis("_log_softmax", x, axis, true, dtype)
}

/// Returns `x` in the type `dtype`, unless the kernel converts it.
fn converted(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == DType::F16 && dtype == DType::F32 {
        Ok(x.clone())
    } else {
        crate::ops::pointwise::cast::cast(x, dtype)
    }
}

/// [`log_softmax`] in the type of `x`, also under autocast, as cross entropy needs it.
pub(in crate::ops) fn in_own_type(x: &Tensor, axis: usize) -> Result<Tensor> {
    let _op = context::op("log_softmax");
    over_axis("_log_softmax", x, axis, true, x.dtype())
}

/// Prepares an operand under autocast: the kernel reads float16 and writes float32; bfloat16 is converted first, as in PyTorch.
fn widened(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::F16 { Ok(x.clone()) } else { full(x) }
}

/// Computes the result in the type `to`.
fn over_axis(op: &'static str, x: &Tensor, axis: usize, log: bool, to: DType) -> Result<Tensor> {
    if axis >= x.rank() {
        return Err(Error::shape(op, format!("axis {axis} of {:?}", x.dims())));
    }
    let _op = context::op(op);
    let y = Array::empty(x.device(), x.dims(), to)?;
    let input = x.array().contiguous()?;
    x.device().launch(Softmax { log, x: around(&input, axis)?, out: around(&y, axis)? })?;
    drop(input);
    record(y.clone(), &[x], |saved| {
        saved.save("result", &y)?;
        let name = if log { "LogSoftmaxBackward0" } else { "SoftmaxBackward0" };
        Ok(Box::new(SoftmaxBackward { name, axis, log, input: x.dtype() }))
    })
}

/// Views a contiguous array as the kernel takes it: the dimensions before the axis, the axis, the dimensions after it.
fn around(x: &Array, axis: usize) -> Result<Operand> {
    let dims = x.dims();
    x.view(&[dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()]).map(|x| x.operand())
}

/// [`softmax`] over the last axis as PyTorch's `_safe_softmax`, which turns rows of −∞ into zeros. Callers never pass such rows, so only its
/// temporaries are reproduced: a mask of the scores' size, and one of the number of rows. `bias`, of any float type, is added to `x` in place first.
pub(in crate::ops) fn safe_softmax(x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let _op = context::op("_safe_softmax");
    let last = x.rank().checked_sub(1).ok_or_else(|| Error::shape("_safe_softmax", "of a scalar"))?;
    let input = x.array().contiguous()?;
    let device = x.device();
    let summed = bias.map_or_else(|| Ok(x.clone()), |bias| added_in_place(x, bias))?;
    let y = context::within("_softmax", || input.empty_like())?;
    match bias.map(Tensor::array) {
        Some(bias) if bias.dtype() == input.dtype() => input.add_(bias)?,
        Some(bias) => {
            // The bias is converted in the memory of the result.
            y.copy_(bias)?;
            input.add_(&y)?;
        }
        None => {}
    }
    {
        let _masked = context::within("isneginf", || Array::empty(device, x.dims(), DType::Bool))?;
        let rows = x.dims()[..last].iter().product();
        let _masked_rows = context::within("all", || Array::empty(device, &[rows], DType::Bool))?;
        let _zero = context::within("scalar_tensor", || Array::empty(device, &[], x.dtype()))?;
    }
    device.launch(Softmax { log: false, x: around(&input, last)?, out: around(&y, last)? })?;
    record(y.clone(), &[&summed], |saved| {
        saved.save("result", &y)?;
        Ok(Box::new(SoftmaxBackward { name: "SafeSoftmaxBackward0", axis: last, log: false, input: x.dtype() }))
    })
}

struct SoftmaxBackward {
    name: &'static str,
    axis: usize,
    log: bool,
    /// Type of the input, and so of its gradient.
    input: DType,
}

impl SoftmaxBackward {
    /// PyTorch computes `grad·y` into a temporary before the sums of softmax, and makes it contiguous if the gradient is not. Its kernel reads a
    /// contiguous array in the end: that product, or for the logarithm the gradient itself.
    fn operands(&self, y: &Array, grad: &Array) -> Result<(Option<Array>, Array)> {
        if self.log || !y.device().profile().torch_temporaries {
            return Ok((None, grad.contiguous()?));
        }
        let layouts = [grad.layout(), y.layout()];
        let product = context::within("mul", || Array::empty_for(y.device(), y.dims(), &layouts, y.dtype()))?;
        if grad.layout().is_contiguous() || !product.layout().is_contiguous() {
            return Ok((Some(product), grad.contiguous()?));
        }
        // For a broadcast gradient, our gradient takes the place of the product.
        product.copy_(grad)?;
        Ok((None, product))
    }
}

impl Function for SoftmaxBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let y = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(if self.log { "_log_softmax_backward_data" } else { "_softmax_backward_data" });
        let out = Array::empty(y.device(), y.dims(), self.input)?;
        {
            let (product, grad) = self.operands(&y, grad)?;
            y.device().launch(SoftmaxGrad {
                log: self.log,
                y: around(&y, self.axis)?,
                grad: around(&grad, self.axis)?,
                out: around(&out, self.axis)?,
                workspace: product.as_ref().map(Array::operand),
            })?;
        }
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
