//! Converts to another element type or another device, and the gradient back.

use smallvec::smallvec;

use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;

/// Returns the values in another type, or the same tensor if it has that type already. The gradient is converted back. Saves nothing. A
/// type that is not a float has no gradient.
pub fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    let _op = context::op("to>_to_copy");
    let y = x.array().cast(dtype)?;
    if !dtype.is_differentiable() {
        return Ok(Tensor::from_array(y));
    }
    record(y, &[x], |_| Ok(Box::new(ToCopyBackward::to(x))))
}

/// Returns the values on another device, as PyTorch's `x.to('cuda:1')`, or the same tensor if it is on that device already. The gradient is moved
/// back to the device of `x`. Saves nothing: the source lives only as long as its owners hold it.
///
/// # Errors
/// [`Error::NoValues`](crate::Error::NoValues) between a device that computes and one that does not; errors of the devices.
pub fn to_device(x: &Tensor, device: &Device) -> Result<Tensor> {
    if x.device().is_same(device) {
        return Ok(x.clone());
    }
    let _op = context::op("to>_to_copy");
    let y = x.array().to_device(device)?;
    record(y, &[x], |_| Ok(Box::new(ToCopyBackward::to(x))))
}

/// Converts the gradient back to the type and the device of the source.
struct ToCopyBackward {
    device: Device,
    dtype: DType,
}

impl ToCopyBackward {
    fn to(source: &Tensor) -> Self {
        Self { device: source.device().clone(), dtype: source.dtype() }
    }
}

impl Function for ToCopyBackward {
    fn name(&self) -> &'static str {
        "ToCopyBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("to>_to_copy");
        // Of complex numbers the gradient of real ones is the real part, a view.
        let grad = if grad.dtype().is_complex() && self.dtype.is_float() { grad.real()? } else { grad.clone() };
        Ok(smallvec![Some(grad.to_device(&self.device)?.cast(self.dtype)?)])
    }
}
