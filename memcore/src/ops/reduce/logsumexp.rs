//! The logarithm of a sum of exponentials.

use smallvec::smallvec;

use super::sums_and_extremes::kept_dims;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::shape::view::Dims;

/// `ln Σ eˣ` over `axes`, which stay with size 1 if `keepdim`. The largest element is subtracted first, so that nothing overflows. Saves
/// input and result.
///
/// # Errors
/// [`Error::Shape`] for no axis, or one that does not exist; errors of the device.
pub fn logsumexp(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    if axes.is_empty() {
        return Err(Error::shape("logsumexp", "over no axis"));
    }
    let _op = context::op("logsumexp");
    let x = &full(x)?;
    let y = log_of_sums(x.array(), axes, keepdim)?;
    record(y.clone(), &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("result", &y)?;
        Ok(Box::new(LogsumexpBackward { kept: kept_dims(x.dims(), axes) }))
    })
}

/// `ln Σ eˣ` over `axes`, without a history.
pub(in crate::ops) fn log_of_sums(x: &Array, axes: &[usize], keepdim: bool) -> Result<Array> {
    let largest = context::within("amax", || x.reduce(ReduceOp::Max, axes, true))?;
    {
        // An infinite largest element is replaced by 0. It is found by 0·∞, which is NaN, and only NaN differs from itself.
        let marked = context::within("abs>resize_", || largest.affine(0.0, 0.0))?;
        let infinite = context::within("eq", || marked.binary(BinaryOp::Ne, &marked))?;
        largest.masked_fill_(&infinite, 0.0)?;
        drop(infinite);
    }
    let shares = context::within("sub", || x.binary(BinaryOp::Sub, &largest))?;
    shares.unary_(UnaryOp::Exp)?;
    let y = shares.reduce_made_by(Some("sum>resize_"), ReduceOp::Sum, axes, keepdim)?;
    y.unary_(UnaryOp::Log)?;
    y.binary_(BinaryOp::ADD, &largest.view(y.dims())?)?;
    drop(shares);
    drop(largest);
    Ok(y)
}

struct LogsumexpBackward {
    /// Sizes of the result, with the reduced axes of size 1.
    kept: Dims,
}

impl Function for LogsumexpBackward {
    fn name(&self) -> &'static str {
        "LogsumexpBackward0"
    }

    /// `grad · e^(x − result)`.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, y) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let difference = context::within("sub", || x.binary(BinaryOp::Sub, &y.view(&self.kept)?))?;
        let shares = context::within("exp", || difference.unary(UnaryOp::Exp))?;
        let out = context::within("mul", || grad.view(&self.kept)?.mul(&shares))?;
        drop(shares);
        drop(difference);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
