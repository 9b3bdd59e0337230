//! Losses of two tensors of the same sizes: mean squared and mean absolute error.

use smallvec::smallvec;

use super::autocast::full;
use super::binary::sub;
use super::elementwise::abs;
use super::reduce::{mean, sum};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, ReduceOp, Reduction, TernaryOp};
use crate::context;
use crate::error::{Error, Result};

/// The squared difference, reduced. Saves both operands.
///
/// As PyTorch's, the scalar keeps a storage of the full elementwise size: the differences are reduced through a temporary and the result is
/// shrunk in place.
///
/// # Errors
/// [`Error::Shape`] when the shapes differ; those of the device.
pub fn mse_loss(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    if x.dims() != target.dims() {
        return Err(Error::shape("mse_loss", format!("{:?} against {:?}", x.dims(), target.dims())));
    }
    let _op = context::op("mse_loss");
    let (target, x) = (&full(target)?, &full(x)?);
    let numel = x.numel() as f64;
    let (y, scale) = match reduction {
        Reduction::None => (x.array().binary(BinaryOp::SquaredDifference, target.array())?, 2.0),
        Reduction::Sum => (reduced_squares(x, target, ReduceOp::Sum)?, 2.0),
        Reduction::Mean => (reduced_squares(x, target, ReduceOp::Mean)?, 2.0 / numel),
    };
    record(y, &[x, target], |saved| {
        saved.save("self", x.array())?;
        saved.save("target", target.array())?;
        Ok(Box::new(MseLossBackward { scale }))
    })
}

fn reduced_squares(x: &Tensor, target: &Tensor, op: ReduceOp) -> Result<Array> {
    if !x.device().profile().torch_temporaries {
        return x.array().binary(BinaryOp::SquaredDifference, target.array())?.reduce(op, &[], false);
    }
    let result = x.array().empty_like()?;
    let squares = x.array().binary(BinaryOp::SquaredDifference, target.array())?;
    let result = result.into_scalar();
    squares.reduce_into(op, &result)?;
    Ok(result)
}

/// The absolute difference, reduced: a composition, as PyTorch's. Saves the difference.
///
/// # Errors
/// [`Error::Shape`] when the shapes differ; those of the device.
pub fn l1_loss(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    if x.dims() != target.dims() {
        return Err(Error::shape("l1_loss", format!("{:?} against {:?}", x.dims(), target.dims())));
    }
    let _op = context::op("l1_loss");
    let (target, x) = (&full(target)?, &full(x)?);
    let distances = abs(&sub(x, target)?)?;
    match reduction {
        Reduction::None => Ok(distances),
        Reduction::Sum => sum(&distances),
        Reduction::Mean => mean(&distances),
    }
}

struct MseLossBackward {
    scale: f64,
}

impl Function for MseLossBackward {
    fn name(&self) -> &'static str {
        "MseLossBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, target) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("mse_loss_backward>zeros_like");
        let mut out: Grads = smallvec![None, None];
        for (i, sign) in [1.0, -1.0].into_iter().enumerate() {
            if needs.input(i) {
                let op = TernaryOp::MseGrad { scale: sign * self.scale };
                out[i] = Some(Array::ternary(op, grad, &x, &target, x.dims())?);
            }
        }
        saved.done();
        Ok(out)
    }
}
