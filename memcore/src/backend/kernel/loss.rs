//! Negative log-likelihood of class indices. (Squared error is [`Binary`](super::Binary) and [`Reduce`](super::Reduce).)

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// How the losses of all targets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Not at all: one loss per target.
    None,
    /// Averaged over the targets that are not ignored.
    Mean,
    /// Added up.
    Sum,
}

/// `loss[i, j] = −log_probs[i, target[i, j], j]`, 0 where the target is `ignore_index`; then `reduction`. `inner` is
/// the number of positions of one example, such as the pixels of a picture; it is 1 if an example has one class.
///
/// `total_weight` receives the number of targets that are not ignored, whatever the reduction (PyTorch keeps it for
/// backward). A target outside `0..classes` that is not `ignore_index` makes the loss NaN, because a kernel cannot
/// report errors.
#[derive(Clone, Debug)]
pub struct NllLoss {
    /// How the losses are combined.
    pub reduction: Reduction,
    /// A target of this value does not count.
    pub ignore_index: i64,
    /// `[n, classes, inner]`, contiguous.
    pub log_probs: Operand,
    /// `[n, inner]`, i64, contiguous.
    pub target: Operand,
    /// Scalar (one element), or `[n, inner]` without reduction.
    pub out: Operand,
    /// Scalar (one element), `out`'s type.
    pub total_weight: Operand,
}
kernel!(NllLoss, "nll_loss", in_place: false, [reduction, ignore_index], { log_probs: Read, target: Read, out: Write, total_weight: Write }, flops: |k| k.target.numel() as u64, gathers: log_probs, |k| k.target.numel());
impl NllLoss {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        check_classes(c, "log_probs", &self.log_probs, &self.target)?;
        check_loss(c, "out", &self.out, self.reduction, &self.log_probs)?;
        c.contiguous("out", &self.out)?;
        c.dtype("total_weight", &self.total_weight, self.log_probs.dtype)?;
        c.that(self.total_weight.numel() == 1, "total_weight", || "not a scalar".into())
    }
}

/// `out[i, target[i, j], j] = −grad·scale`, 0 elsewhere; for a mean, scale is 1/total_weight, else 1. A target outside
/// `0..classes` is skipped, like an ignored one.
#[derive(Clone, Debug)]
pub struct NllLossGrad {
    /// The reduction of the forward pass.
    pub reduction: Reduction,
    /// A target of this value does not count.
    pub ignore_index: i64,
    /// Gradient of the loss: scalar, or `[n, inner]` of any strides without reduction.
    pub grad: Operand,
    /// `[n, inner]`, i64, contiguous.
    pub target: Operand,
    /// Scalar, as forward wrote it.
    pub total_weight: Operand,
    /// `[n, classes, inner]`, contiguous.
    pub out: Operand,
}
kernel!(NllLossGrad, "nll_loss_grad", in_place: false, [reduction, ignore_index], { grad: Read, target: Read, total_weight: Read, out: Write }, flops: |k| k.target.numel() as u64);
impl NllLossGrad {
    /// Strides of the gradient from example to example and from position to position; both 0 for a scalar.
    pub fn grad_strides(&self) -> [usize; 2] {
        match (self.reduction, self.grad.layout.strides()) {
            (Reduction::None, &[example, position]) => [example, position],
            _ => [0, 0],
        }
    }

    fn check_shapes(&self, c: &Check) -> Result<()> {
        check_classes(c, "out", &self.out, &self.target)?;
        check_loss(c, "grad", &self.grad, self.reduction, &self.out)?;
        c.dtype("total_weight", &self.total_weight, self.out.dtype)?;
        c.that(self.total_weight.numel() == 1, "total_weight", || "not a scalar".into())
    }
}

fn check_classes(c: &Check, name: &'static str, x: &Operand, target: &Operand) -> Result<()> {
    c.rank(name, x, 3)?;
    c.contiguous(name, x)?;
    c.float(name, x)?;
    c.dtype("target", target, DType::I64)?;
    c.dense("target", target, &[x.dims()[0], x.dims()[2]])
}

fn check_loss(c: &Check, name: &'static str, loss: &Operand, reduction: Reduction, x: &Operand) -> Result<()> {
    c.dtype(name, loss, x.dtype)?;
    match reduction {
        Reduction::None => c.dims(name, loss, &[x.dims()[0], x.dims()[2]]),
        _ => c.that(loss.numel() == 1, name, || format!("{:?} is not a scalar", loss.dims())),
    }
}
