//! Conversion to another element type.

use smallvec::smallvec;

use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::Result;

/// The values in another type; this very tensor when the type is the same. The gradient is converted back. Saves nothing; a type that is no
/// float has no gradient.
///
/// # Errors
/// Those of the device.
pub fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    let _op = context::op("to>_to_copy");
    let y = x.array().cast(dtype)?;
    if !dtype.is_float() {
        return Ok(Tensor::from_array(y));
    }
    record(y, &[x], |_| Ok(Box::new(ToCopyBackward { from: x.dtype() })))
}

struct ToCopyBackward {
    from: DType,
}

impl Function for ToCopyBackward {
    fn name(&self) -> &'static str {
        "ToCopyBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("to>_to_copy");
        Ok(smallvec![Some(grad.cast(self.from)?)])
    }
}
