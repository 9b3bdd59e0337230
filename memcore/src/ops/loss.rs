//! Losses: negative log-likelihood, cross entropy, mean squared and mean absolute error.

use smallvec::smallvec;

use super::autocast::full;
use super::binary::sub;
use super::elementwise::abs;
use super::reduce::{mean, sum};
use super::softmax::in_own_type;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, NllLoss, NllLossGrad, ReduceOp, Reduction, TernaryOp};
use crate::context;
use crate::error::{Error, Result};

/// Targets that do not count, unless said otherwise; PyTorch's default.
pub const IGNORE_INDEX: i64 = -100;

/// Cross entropy of logits `[n, classes]` against class indices `[n]` (i64): `nll_loss(log_softmax(x))`. Keeps the log-probabilities,
/// not the logits, and the 4-byte total weight.
///
/// # Errors
/// [`Error::Shape`] when they do not fit; those of the device.
pub fn cross_entropy(logits: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _op = context::op("cross_entropy_loss");
    let log_probs = in_own_type(logits, 1)?;
    negative_log_likelihood(&log_probs, target, reduction, ["nll_loss_nd", "nll_loss_forward"])
}

/// `−log_probs[i, target[i]]`, reduced. Targets of [`IGNORE_INDEX`] do not count.
///
/// # Errors
/// As [`cross_entropy`].
pub fn nll_loss(log_probs: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    negative_log_likelihood(log_probs, target, reduction, ["nll_loss_nd>nll_loss", "nll_loss_forward"])
}

fn negative_log_likelihood(
    log_probs: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    [outer, op]: [&'static str; 2],
) -> Result<Tensor> {
    if log_probs.rank() != 2 || target.dims() != &log_probs.dims()[..1] {
        let detail =
            format!("predictions {:?}, targets {:?}: expected [n, classes] and [n]", log_probs.dims(), target.dims());
        return Err(Error::shape("nll_loss", detail));
    }
    let _outer = context::op(outer);
    let log_probs = &full(log_probs)?;
    let _op = context::op(op);
    let device = log_probs.device();
    let dims = if reduction == Reduction::None { target.dims() } else { &[] };
    let y = Array::empty(device, dims, log_probs.dtype())?;
    let total_weight = Array::empty(device, &[], log_probs.dtype())?;
    let (input, classes) = (log_probs.array().contiguous()?, target.array().contiguous()?);
    device.launch(NllLoss {
        reduction,
        ignore_index: IGNORE_INDEX,
        log_probs: input.operand(),
        target: classes.operand(),
        out: y.operand(),
        total_weight: total_weight.operand(),
    })?;
    drop((classes, input));
    record(y, &[log_probs], |saved| {
        saved.save("self", log_probs.array())?;
        saved.save("target", target.array())?;
        saved.save("total_weight", &total_weight)?;
        Ok(Box::new(NllLossBackward { reduction }))
    })
}

struct NllLossBackward {
    reduction: Reduction,
}

impl Function for NllLossBackward {
    fn name(&self) -> &'static str {
        "NllLossBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (log_probs, target, total_weight) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("nll_loss_backward");
        let out = log_probs.empty_like()?;
        // PyTorch brings the input into order, of which only the sizes are needed.
        let ordered = out.device().profile().torch_temporaries && !log_probs.layout().is_contiguous();
        let input = if ordered { Some(context::within("contiguous>clone", || log_probs.empty_like())?) } else { None };
        let target = target.contiguous()?;
        out.device().launch(NllLossGrad {
            reduction: self.reduction,
            ignore_index: IGNORE_INDEX,
            grad: grad.contiguous()?.operand(),
            target: target.operand(),
            total_weight: total_weight.operand(),
            out: out.operand(),
        })?;
        drop((target, input));
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

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
