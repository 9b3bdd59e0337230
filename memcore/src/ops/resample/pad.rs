//! A border of one value around a tensor.

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::shape::view::Dims;
use smallvec::smallvec;

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
    inside.apply(&y)?.copy_(x.array())?;
    record(y, &[x], |_| Ok(Box::new(inside)))
}

/// Position of the values inside the border.
struct Inside {
    dims: Dims,
    starts: Dims,
}

impl Inside {
    fn apply(&self, y: &Array) -> Result<Array> {
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
        let inside = self.apply(grad)?;
        // A clone keeps the order of the dimensions in memory.
        let out = Array::empty_for(grad.device(), inside.dims(), &[inside.layout()], grad.dtype())?;
        out.copy_(&inside)?;
        Ok(smallvec![Some(out)])
    }
}
