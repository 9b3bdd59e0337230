//! Rolls elements along an axis: those that leave at one end come in at the other.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::error::{Error, Result};

/// Moves each axis of `axes` of `x` forward by its shift (a negative shift: backward), as PyTorch's `torch.roll`. The axes are moved one after the
/// other, each into memory of its own. Saves nothing; the gradient is moved back.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist, or none; errors of the device.
pub fn roll(x: &Tensor, shifts: &[i64], axes: &[usize]) -> Result<Tensor> {
    if shifts.len() != axes.len() || axes.is_empty() || axes.iter().any(|axis| *axis >= x.rank()) {
        return Err(Error::shape("roll", format!("{:?} by {shifts:?} along {axes:?}", x.dims())));
    }
    let _op = context::op("roll");
    let y = moved(x.array(), shifts, axes)?;
    record(y, &[x], |_| Ok(Box::new(RollBackward { shifts: shifts.into(), axes: axes.into() })))
}

fn moved(x: &Array, shifts: &[i64], axes: &[usize]) -> Result<Array> {
    let mut y = x.clone();
    for (&shift, &axis) in shifts.iter().zip(axes) {
        let size = y.dims()[axis];
        let out = Array::empty(y.device(), y.dims(), y.dtype())?;
        let front = if size == 0 { 0 } else { shift.rem_euclid(size as i64) as usize };
        for (from, to, len) in [(size - front, 0, front), (0, front, size - front)] {
            if len > 0 {
                out.narrow(axis, to, len)?.copy_(&y.narrow(axis, from, len)?)?;
            }
        }
        y = out;
    }
    Ok(y)
}

struct RollBackward {
    shifts: SmallVec<[i64; 4]>,
    axes: SmallVec<[usize; 4]>,
}

impl Function for RollBackward {
    fn name(&self) -> &'static str {
        "RollBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("roll");
        let back: SmallVec<[i64; 4]> = self.shifts.iter().map(|shift| shift.saturating_neg()).collect();
        Ok(smallvec![Some(moved(grad, &back, &self.axes)?)])
    }
}
