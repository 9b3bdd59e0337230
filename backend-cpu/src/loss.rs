//! Negative log-likelihood of class indices.

use memcore::backend::Operand;
use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};
use memcore::error::Result;

use crate::element::{Float, Number, Real, float_type};
use crate::view::{Context, SharedMut};

/// `loss[i] = −log_probs[i, target[i]]`, reduced.
pub(crate) fn nll_loss(ctx: &Context<'_>, k: &NllLoss) -> Result<()> {
    float_type!(k.log_probs.dtype, T => forward::<T>(ctx, k), else Ok(()))
}

/// A value of the loss's element type.
fn value<T: Float>(x: f64) -> T {
    T::put(<T::Compute as Number>::from_f64(x))
}

fn forward<T: Float>(ctx: &Context<'_>, k: &NllLoss) -> Result<()> {
    let classes = k.log_probs.dims()[1];
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let (log_probs, target) = unsafe { (ctx.input::<T>(&k.log_probs)?, ctx.input::<i64>(&k.target)?) };
    // SAFETY: as above, and each is taken once.
    let (out, total_weight) = unsafe { (ctx.output::<T>(&k.out)?, ctx.output::<T>(&k.total_weight)?) };
    let (mut total, mut counted) = (0.0, 0usize);
    for (i, &class) in target.iter().enumerate() {
        let ignored = class == k.ignore_index;
        let loss = match usize::try_from(class) {
            _ if ignored => 0.0,
            Ok(class) if class < classes => -log_probs[i * classes + class].get().to_f64(),
            _ => f64::NAN,
        };
        counted += usize::from(!ignored);
        if k.reduction == Reduction::None {
            out[i] = value(loss);
        } else {
            total += loss;
        }
    }
    total_weight[0] = value(counted as f64);
    match k.reduction {
        Reduction::None => {}
        Reduction::Sum => out[0] = value(total),
        Reduction::Mean => out[0] = value(total / counted as f64),
    }
    Ok(())
}

/// `out[i, target[i]] = −grad·scale`, 0 elsewhere.
pub(crate) fn nll_loss_grad(ctx: &Context<'_>, k: &NllLossGrad) -> Result<()> {
    float_type!(k.out.dtype, T => backward::<T>(ctx, k), else Ok(()))
}

fn backward<T: Float>(ctx: &Context<'_>, k: &NllLossGrad) -> Result<()> {
    let [rows, classes] = *k.out.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let (grad, target) = unsafe { (ctx.input::<T>(&k.grad)?, ctx.input::<i64>(&k.target)?) };
    let scale = match k.reduction {
        Reduction::Mean => 1.0 / scalar::<T>(ctx, &k.total_weight)?,
        _ => 1.0,
    };
    // SAFETY: as above.
    let out = SharedMut::new(unsafe { ctx.output::<T>(&k.out)? });
    ctx.for_pieces(rows, (32usize << 10).div_ceil(classes.max(1)), classes, |start, end| {
        // SAFETY: pieces are disjoint rows.
        let out = unsafe { out.part(start * classes, (end - start) * classes) };
        out.fill(value(0.0));
        for i in start..end {
            let grad = grad[if k.reduction == Reduction::None { i } else { 0 }].get().to_f64();
            match usize::try_from(target[i]) {
                _ if target[i] == k.ignore_index => {}
                Ok(class) if class < classes => out[(i - start) * classes + class] = value(-grad * scale),
                _ => {}
            }
        }
    });
    Ok(())
}

fn scalar<T: Float>(ctx: &Context<'_>, operand: &Operand) -> Result<f64> {
    // SAFETY: read at once; the caller has not taken an output that aliases it.
    Ok(unsafe { *ctx.ptr::<T>(operand)? }.get().to_f64())
}
