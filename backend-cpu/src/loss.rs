//! Negative log-likelihood of class indices.

use memcore::backend::Operand;
use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};
use memcore::error::Result;

use crate::element::{Float, Number, Real, float_type};
use crate::view::{Context, SharedMut};

/// `loss[i, j] = −log_probs[i, target[i, j], j]`, reduced.
pub(crate) fn nll_loss(ctx: &Context<'_>, k: &NllLoss) -> Result<()> {
    float_type!(k.log_probs.dtype, T => forward::<T>(ctx, k), else Ok(()))
}

/// Converts a value to the loss's element type.
fn value<T: Float>(x: f64) -> T {
    T::put(<T::Compute as Number>::from_f64(x))
}

fn forward<T: Float>(ctx: &Context<'_>, k: &NllLoss) -> Result<()> {
    let [_, classes, inner] = *k.log_probs.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let (log_probs, target) = unsafe { (ctx.input::<T>(&k.log_probs)?, ctx.input::<i64>(&k.target)?) };
    // SAFETY: as above, and each is taken once.
    let (out, total_weight) = unsafe { (ctx.output::<T>(&k.out)?, ctx.output::<T>(&k.total_weight)?) };
    let (mut total, mut counted) = (0.0, 0usize);
    for (i, &class) in target.iter().enumerate() {
        let ignored = class == k.ignore_index;
        let loss = match usize::try_from(class) {
            _ if ignored => 0.0,
            Ok(class) if class < classes => {
                -log_probs[(i / inner * classes + class) * inner + i % inner].get().to_f64()
            }
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

/// `out[i, target[i, j], j] = −grad·scale`, 0 elsewhere.
pub(crate) fn nll_loss_grad(ctx: &Context<'_>, k: &NllLossGrad) -> Result<()> {
    float_type!(k.out.dtype, T => backward::<T>(ctx, k), else Ok(()))
}

fn backward<T: Float>(ctx: &Context<'_>, k: &NllLossGrad) -> Result<()> {
    let [rows, classes, inner] = *k.out.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let target = unsafe { ctx.input::<i64>(&k.target)? };
    let grad = SharedMut::from_ptr(ctx.ptr::<T>(&k.grad)?);
    let [example, position] = k.grad_strides();
    let scale = match k.reduction {
        Reduction::Mean => 1.0 / scalar::<T>(ctx, &k.total_weight)?,
        _ => 1.0,
    };
    // SAFETY: as above.
    let out = SharedMut::new(unsafe { ctx.output::<T>(&k.out)? });
    let planes = rows * classes;
    ctx.for_pieces(planes, (32usize << 10).div_ceil(inner.max(1)), inner, |start, end| {
        // SAFETY: pieces are disjoint planes, one for each example and class.
        let out = unsafe { out.part(start * inner, (end - start) * inner) };
        out.fill(value(0.0));
        for i in start / classes..end.div_ceil(classes) {
            for (j, &t) in target[i * inner..][..inner].iter().enumerate() {
                // SAFETY: an element of the gradient, which nobody writes.
                let grad = unsafe { grad.view(i * example + j * position, 1) }[0].get().to_f64();
                match usize::try_from(t) {
                    _ if t == k.ignore_index => {}
                    Ok(class) if class < classes && (start..end).contains(&(i * classes + class)) => {
                        out[(i * classes + class - start) * inner + j] = value(-grad * scale);
                    }
                    _ => {}
                }
            }
        }
    });
    Ok(())
}

fn scalar<T: Float>(ctx: &Context<'_>, operand: &Operand) -> Result<f64> {
    // SAFETY: read at once; the caller has not taken an output that aliases it.
    Ok(unsafe { *ctx.ptr::<T>(operand)? }.get().to_f64())
}
