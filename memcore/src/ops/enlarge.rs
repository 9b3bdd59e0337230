//! Enlarges pictures: by nearest neighbours, and by a border.

use smallvec::smallvec;

use super::autocast::full;
use super::shape::Dims;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::error::{Error, Result};

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

/// Adds a border of `value` around `x`: `borders[i]` elements before and after it in dimension `i`. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] unless there is one pair for each dimension; errors of the device.
pub fn pad(x: &Tensor, borders: &[[usize; 2]], value: f64) -> Result<Tensor> {
    if borders.len() != x.rank() {
        return Err(Error::shape("pad", format!("{borders:?} around {:?}", x.dims())));
    }
    let _op = context::op("pad>constant_pad_nd");
    let dims: Dims = x.dims().iter().zip(borders).map(|(&d, [before, behind])| before + d + behind).collect();
    let y = Array::empty_in_format(x.array(), &dims)?;
    y.fill_(value)?;
    let inside = Inside { dims: x.dims().into(), starts: borders.iter().map(|border| border[0]).collect() };
    inside.of(&y)?.copy_(x.array())?;
    record(y, &[x], |_| Ok(Box::new(inside)))
}

/// Position of the values inside the border.
struct Inside {
    dims: Dims,
    starts: Dims,
}

impl Inside {
    fn of(&self, y: &Array) -> Result<Array> {
        let mut part = y.clone();
        for (axis, (&start, &len)) in self.starts.iter().zip(&self.dims).enumerate() {
            part = part.narrow(axis, start, len)?;
        }
        Ok(part)
    }
}

impl Function for Inside {
    fn name(&self) -> &'static str {
        "ConstantPadNdBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("constant_pad_nd>clone");
        let inside = self.of(grad)?;
        // A clone keeps the order of the dimensions in memory.
        let out = Array::empty_for(grad.device(), inside.dims(), &[inside.layout()], grad.dtype())?;
        out.copy_(&inside)?;
        Ok(smallvec![Some(out)])
    }
}
