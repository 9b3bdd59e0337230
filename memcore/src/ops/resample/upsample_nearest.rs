//! Pictures enlarged by nearest neighbours.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;

/// Repeats each element of `[n, c, h, w]` `factor` (down, across) times: `[n, c, h·down, w·across]`. This is PyTorch's nearest-neighbour
/// interpolation by whole factors. Saves nothing; the gradient is summed back. Computes in float32 under autocast.
///
/// # Errors
/// [`Error::Shape`] for other than four dimensions, or a factor of 0; errors of the device.
pub fn upsample_nearest2d(x: &Tensor, factor: [usize; 2]) -> Result<Tensor> {
    let [n, c, h, w] = *x.dims() else {
        return Err(Error::shape("upsample_nearest2d", format!("{:?}: expected four dimensions", x.dims())));
    };
    if factor.contains(&0) {
        return Err(Error::shape("upsample_nearest2d", format!("a factor of {factor:?}")));
    }
    let _op = context::op("upsample_nearest2d");
    let x = &full(x)?;
    let y = Array::empty_in_format(x.array(), &[n, c, h * factor[0], w * factor[1]])?;
    y.view(&[n, c, h, factor[0], w, factor[1]])?.copy_(&x.array().unsqueeze(3)?.unsqueeze(5)?)?;
    record(y, &[x], |_| Ok(Box::new(UpsampleNearestBackward { dims: [n, c, h, w], factor })))
}

struct UpsampleNearestBackward {
    dims: [usize; 4],
    factor: [usize; 2],
}

impl Function for UpsampleNearestBackward {
    fn name(&self) -> &'static str {
        "UpsampleNearest2DBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("upsample_nearest2d_backward");
        let [n, c, h, w] = self.dims;
        let out = Array::empty_in_format(grad, &self.dims)?;
        let parts = grad.reshape(&[n, c, h, self.factor[0], w, self.factor[1]])?;
        parts.reduce_axes_into(ReduceOp::Sum, &out.view(&[n, c, h, 1, w, 1])?)?;
        Ok(smallvec![Some(out)])
    }
}
