//! Losses of two tensors of the same sizes: mean squared and mean absolute error, and the losses between them.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, ReduceOp, Reduction, TernaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::pointwise::binary::sub;
use crate::ops::pointwise::unary::abs;
use crate::ops::reduce::sums_and_extremes::{mean, sum};

/// Squared difference, reduced. Saves both operands.
///
/// As in PyTorch, the scalar keeps a storage of the full elementwise size: the differences are reduced through a temporary, and the result
/// is shrunk in place.
///
/// # Errors
/// [`Error::Shape`] if the shapes differ; errors of the device.
pub fn mse_loss(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    check_same("mse_loss", x, target)?;
    let _op = context::op("mse_loss");
    let (target, x) = (&full(target)?, &full(x)?);
    let y = reduced_in_place(x, reduction, || x.array().binary(BinaryOp::SquaredDifference, target.array()))?;
    record(y, &[x, target], |saved| {
        saved.save("self", x.array())?;
        saved.save("target", target.array())?;
        Ok(Box::new(MseLossBackward { scale: 2.0 * scale(reduction, x) }))
    })
}

/// Returns [`Error::Shape`] unless both have the same sizes.
pub(in crate::ops) fn check_same(op: &'static str, x: &Tensor, target: &Tensor) -> Result<()> {
    if x.dims() == target.dims() {
        return Ok(());
    }
    Err(Error::shape(op, format!("{:?} against {:?}", x.dims(), target.dims())))
}

/// Returns the losses, or reduces them as PyTorch does: into a scalar that keeps the memory of all losses and is made before them.
fn reduced_in_place(x: &Tensor, reduction: Reduction, losses: impl FnOnce() -> Result<Array>) -> Result<Array> {
    if reduction == Reduction::None {
        return losses();
    }
    if !x.device().profile().torch_temporaries {
        return losses()?.reduce(reducing(reduction), &[], false);
    }
    let result = x.array().empty_like()?;
    let losses = losses()?;
    let result = result.into_scalar();
    losses.reduce_into(reducing(reduction), &result)?;
    Ok(result)
}

/// Absolute difference, reduced. It is composed of several operators, as in PyTorch. Saves the difference.
///
/// # Errors
/// [`Error::Shape`] if the shapes differ; errors of the device.
pub fn l1_loss(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    check_same("l1_loss", x, target)?;
    let _op = context::op("l1_loss");
    let (target, x) = (&full(target)?, &full(x)?);
    let distances = abs(&sub(x, target)?)?;
    match reduction {
        Reduction::None => Ok(distances),
        Reduction::Sum => sum(&distances),
        Reduction::Mean => mean(&distances),
    }
}

/// Squared difference up to `beta`, absolute difference beyond: `d²/(2·beta)` where `|d| < beta`, else `|d| − beta/2`; reduced. Saves both
/// operands. Like that of [`mse_loss`], a scalar keeps the memory of all differences. With a `beta` of 0 it is [`l1_loss`].
///
/// # Errors
/// [`Error::Shape`] if the shapes differ, [`Error::Invalid`] for a negative `beta`; errors of the device.
pub fn smooth_l1_loss(x: &Tensor, target: &Tensor, reduction: Reduction, beta: f64) -> Result<Tensor> {
    if beta == 0.0 {
        return l1_loss(x, target, reduction);
    }
    let [x, target] = &bounded("smooth_l1_loss", x, target, beta)?;
    let _op = context::op("smooth_l1_loss");
    let y = reduced_in_place(x, reduction, || {
        let losses = x.array().binary(BinaryOp::Sub, target.array())?;
        losses.unary_(UnaryOp::Huber { delta: beta })?;
        losses.unary_(UnaryOp::Affine { mul: 1.0 / beta, add: 0.0 })?;
        Ok(losses)
    })?;
    let backward = BoundedBackward {
        name: "SmoothL1LossBackward0",
        op: "smooth_l1_loss_backward>zeros_like",
        delta: beta,
        scale: scale(reduction, x) / beta,
    };
    record_bounded(y, x, target, backward)
}

/// Half the squared difference up to `delta`, `delta·(|d| − delta/2)` beyond; reduced. Saves both operands.
pub fn huber_loss(x: &Tensor, target: &Tensor, reduction: Reduction, delta: f64) -> Result<Tensor> {
    let [x, target] = &bounded("huber_loss", x, target, delta)?;
    let _op = context::op("huber_loss");
    let losses = x.array().binary(BinaryOp::Sub, target.array())?;
    losses.unary_(UnaryOp::Huber { delta })?;
    let y = reduced(losses, reduction)?;
    let (name, op) = ("HuberLossBackward0", "huber_loss_backward>zeros_like");
    record_bounded(y, x, target, BoundedBackward { name, op, delta, scale: scale(reduction, x) })
}

/// Returns the losses, or their reduction.
pub(in crate::ops) fn reduced(losses: Array, reduction: Reduction) -> Result<Array> {
    let name = match reduction {
        Reduction::None => return Ok(losses),
        Reduction::Mean => "mean",
        Reduction::Sum => "sum",
    };
    context::within(name, || losses.reduce(reducing(reduction), &[], false))
}

fn reducing(reduction: Reduction) -> ReduceOp {
    if reduction == Reduction::Mean { ReduceOp::Mean } else { ReduceOp::Sum }
}

/// Factor of each element's gradient.
pub(in crate::ops) fn scale(reduction: Reduction, x: &Tensor) -> f64 {
    if reduction == Reduction::Mean { 1.0 / x.numel() as f64 } else { 1.0 }
}

/// Returns both operands in autocast's type, after checking that they fit together and that the bound is positive.
fn bounded(op: &'static str, x: &Tensor, target: &Tensor, bound: f64) -> Result<[Tensor; 2]> {
    check_same(op, x, target)?;
    if bound.is_nan() || bound <= 0.0 {
        return Err(Error::invalid(op, format!("a bound of {bound}")));
    }
    let _op = context::op(op);
    let target = full(target)?;
    Ok([full(x)?, target])
}

fn record_bounded(y: Array, x: &Tensor, target: &Tensor, backward: BoundedBackward) -> Result<Tensor> {
    record(y, &[x, target], |saved| {
        saved.save("self", x.array())?;
        saved.save("target", target.array())?;
        Ok(Box::new(backward))
    })
}

/// Backward of a loss whose slope is the difference, clamped to a bound.
struct BoundedBackward {
    name: &'static str,
    op: &'static str,
    delta: f64,
    scale: f64,
}

impl Function for BoundedBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    /// `grad·scale·min(max(x − target, −delta), delta)`, and its negative for the target.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, target) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.op);
        let mut out: Grads = smallvec![None, None];
        for (i, sign) in [1.0, -1.0].into_iter().enumerate() {
            if needs.input(i) {
                let slope = Array::empty(x.device(), x.dims(), x.dtype())?;
                x.binary_into(BinaryOp::Sub, &target, &slope)?;
                slope.unary_(UnaryOp::Clamp { min: -self.delta, max: self.delta })?;
                slope.unary_(UnaryOp::Affine { mul: sign * self.scale, add: 0.0 })?;
                slope.binary_(BinaryOp::Mul, grad)?;
                out[i] = Some(slope);
            }
        }
        saved.done();
        Ok(out)
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
