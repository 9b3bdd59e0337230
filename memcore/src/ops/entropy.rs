//! Cross entropy of probabilities of yes and no.

use smallvec::smallvec;

use super::autocast::full;
use super::distance::{check_same, reduced, scale};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, Reduction, UnaryOp};
use crate::context;
use crate::error::Result;

/// `−(t·ln σ(x) + (1 − t)·ln(1 − σ(x)))` of logits and targets of the same sizes, as `(1 − t)·x − ln σ(x)`; reduced. Saves both operands.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the shapes differ; those of the device.
pub fn binary_cross_entropy_with_logits(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    const OP: &str = "binary_cross_entropy_with_logits";
    check_same(OP, x, target)?;
    let _op = context::op(OP);
    let (target, x) = (&full(target)?, &full(x)?);
    let log_sigmoid = context::within("log_sigmoid>log_sigmoid_forward", || x.array().unary(UnaryOp::LogSigmoid))?;
    let losses = target.array().affine(-1.0, 1.0)?;
    losses.binary_(BinaryOp::Mul, x.array())?;
    losses.binary_(BinaryOp::Sub, &log_sigmoid)?;
    let y = reduced(losses, reduction)?;
    drop(log_sigmoid);
    record(y, &[x, target], |saved| {
        saved.save("self", x.array())?;
        saved.save("target", target.array())?;
        Ok(Box::new(LogitsBackward { scale: scale(reduction, x) }))
    })
}

struct LogitsBackward {
    scale: f64,
}

impl Function for LogitsBackward {
    fn name(&self) -> &'static str {
        "BinaryCrossEntropyWithLogitsBackward0"
    }

    /// `grad·scale·(σ(x) − t)`, and `−grad·scale·x`.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, target) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let scaled = UnaryOp::Affine { mul: self.scale, add: 0.0 };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            let slope = context::within("sigmoid", || x.unary(UnaryOp::Sigmoid))?;
            slope.binary_(BinaryOp::Sub, &target)?;
            slope.unary_(scaled)?;
            slope.binary_(BinaryOp::Mul, grad)?;
            out[0] = Some(slope);
        }
        if needs.input(1) {
            let negated: Array = context::within("neg", || x.unary(UnaryOp::Neg))?;
            negated.unary_(scaled)?;
            out[1] = Some(context::within("mul", || negated.mul(grad))?);
        }
        saved.done();
        Ok(out)
    }
}
