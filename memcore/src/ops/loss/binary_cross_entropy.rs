//! Binary cross entropy: of logits, and of probabilities.

use smallvec::smallvec;

use super::regression::{check_same, reduced, scale};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, autocast_dtype, record};
use crate::backend::kernel::{BinaryOp, Reduction, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::on_host;

/// `−(t·ln σ(x) + (1 − t)·ln(1 − σ(x)))` of logits and targets of the same sizes, as `(1 − t)·x − ln σ(x)`; reduced. Saves both operands.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ; errors of the device.
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

/// `−(t·ln x + (1 − t)·ln(1 − x))` of probabilities and targets of the same sizes, each logarithm at least −100; reduced. Saves both operands.
/// Like that of [`mse_loss`](crate::ops::mse_loss), a scalar keeps the memory of all losses. Values are computed on the host.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ; [`Error::Invalid`](crate::Error::Invalid) under autocast, which PyTorch
/// refuses too, and for a target that requires a gradient, which is not supported; errors of the device.
pub fn binary_cross_entropy(x: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    const OP: &str = "binary_cross_entropy";
    check_same(OP, x, target)?;
    if autocast_dtype().is_some() || target.requires_grad() {
        return Err(Error::invalid(OP, "under autocast, or of a target that wants a gradient"));
    }
    let _op = context::op(OP);
    let losses = context::within("empty_like", || Array::empty(x.device(), x.dims(), x.dtype()))?;
    on_host::fill(&losses, &[x.array(), target.array()], |values| {
        let loss = |(&x, &t): (&f64, &f64)| (t - 1.0) * (-x).ln_1p().max(-100.0) - t * x.ln().max(-100.0);
        Ok(values[0].iter().zip(&values[1]).map(loss).collect())
    })?;
    // PyTorch copies the reduced loss into the memory of all losses, and keeps that memory.
    let y = if reduction == Reduction::None || !x.device().profile().torch_temporaries {
        reduced(losses, reduction)?
    } else {
        let value = reduced(losses.clone(), reduction)?;
        let scalar = losses.into_scalar();
        scalar.copy_(&value)?;
        scalar
    };
    record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("target", target.array())?;
        Ok(Box::new(ProbabilitiesBackward { scale: scale(reduction, x) }))
    })
}

struct ProbabilitiesBackward {
    scale: f64,
}

impl Function for ProbabilitiesBackward {
    fn name(&self) -> &'static str {
        "BinaryCrossEntropyBackward0"
    }

    /// `grad·scale·(x − t)/max(x·(1 − x), 1e-12)`
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, target) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("binary_cross_entropy_backward>empty_like");
        let out = Array::empty(x.device(), x.dims(), x.dtype())?;
        let wide = grad.broadcast_to(x.dims())?;
        on_host::fill(&out, &[&x, &target, &wide], |values| {
            let slope = |i: usize| {
                let (x, t, grad) = (values[0][i], values[1][i], values[2][i]);
                grad * self.scale * (x - t) / (x * (1.0 - x)).max(1e-12)
            };
            Ok((0..values[0].len()).map(slope).collect())
        })?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
