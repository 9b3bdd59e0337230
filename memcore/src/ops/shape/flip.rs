//! Elements in another order: flipped along axes, and turned by 90 degrees. Values are computed on the host.

use smallvec::smallvec;

use super::view::Dims;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::on_host;
use crate::ops::reduce::sums_and_extremes::check_axis;

/// Reverses the elements along `axes`, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn flip(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    axes.iter().try_for_each(|&axis| check_axis("flip", x, axis))?;
    let y = context::within("flip>empty_like", || flipped(x.array(), axes))?;
    record(y, &[x], |_| Ok(Box::new(FlipBackward { axes: axes.into() })))
}

fn flipped(x: &Array, axes: &[usize]) -> Result<Array> {
    let y = Array::empty_for(x.device(), x.dims(), &[x.layout()], x.dtype())?;
    let rows = Layout::contiguous(x.dims())?;
    on_host::apply(&y, x, &|i, tell| {
        let place = |(axis, (&dim, &stride)): (usize, (&usize, &usize))| {
            let at = i / stride % dim;
            (if axes.contains(&axis) { dim - 1 - at } else { at }) * stride
        };
        tell(rows.dims().iter().zip(rows.strides()).enumerate().map(place).sum(), 1.0);
    })?;
    Ok(y)
}

struct FlipBackward {
    axes: Dims,
}

impl Function for FlipBackward {
    fn name(&self) -> &'static str {
        "FlipBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("flip>empty_like", || flipped(grad, &self.axes))?)])
    }
}

/// Turns by 90 degrees from the first of two axes to the second, `turns` times, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for axes that do not exist or are the same one; errors of the device.
pub fn rot90(x: &Tensor, turns: i64, axes: [usize; 2]) -> Result<Tensor> {
    axes.iter().try_for_each(|&axis| check_axis("rot90", x, axis))?;
    if axes[0] == axes[1] {
        return Err(Error::shape("rot90", format!("axes {axes:?}")));
    }
    let y = context::within("rot90", || turned(x.array(), turns, axes))?;
    record(y, &[x], |_| Ok(Box::new(Rot90Backward { turns, axes })))
}

fn turned(x: &Array, turns: i64, [from, to]: [usize; 2]) -> Result<Array> {
    match turns.rem_euclid(4) {
        0 => x.copied(),
        1 => flipped(x, &[to])?.transpose(from, to).map(Array::keeping_base),
        2 => flipped(x, &[from, to]),
        _ => flipped(x, &[from])?.transpose(from, to).map(Array::keeping_base),
    }
}

struct Rot90Backward {
    turns: i64,
    axes: [usize; 2],
}

impl Function for Rot90Backward {
    fn name(&self) -> &'static str {
        "Rot90Backward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("rot90", || turned(grad, -self.turns, self.axes))?)])
    }
}
