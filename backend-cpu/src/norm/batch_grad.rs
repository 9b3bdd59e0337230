//! Gradients of batch normalisation.

use memcore::backend::kernel::BatchNormGrad;
use memcore::error::Result;

use super::batch::Pieces;
use super::narrow::{self, NARROW};
use super::{TASK, channel_types, grad_sums, real, strided};
use crate::element::{Element, Float, Real};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Computes the required gradients of the input and the parameters.
pub(crate) fn batch_norm_grad(ctx: &Context<'_>, k: &BatchNormGrad) -> Result<()> {
    channel_types!(k, T, P => run::<T, P>(ctx, k))
}

/// Runs the kernel for parameters of type `P`.
fn run<T: Float, P: Element<Compute = T::Compute>>(ctx: &Context<'_>, k: &BatchNormGrad) -> Result<()> {
    let [n, c, l] = *k.x.dims() else { return Ok(()) };
    if !k.x.layout.is_contiguous() || !k.grad.layout.is_contiguous() {
        return strided::batch_norm_grad::<T, P>(ctx, k);
    }
    if (1..NARROW).contains(&l) {
        return narrow::batch_norm_grad::<T, P>(ctx, k);
    }
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (grad, x, mean, invstd, weight) = unsafe {
        (
            ctx.input::<T>(&k.grad)?,
            ctx.input::<T>(&k.x)?,
            ctx.input::<T::Compute>(&k.mean)?,
            ctx.input::<T::Compute>(&k.invstd)?,
            ctx.input_option::<P>(&k.weight)?,
        )
    };
    // SAFETY: as above.
    let (out_x, mut out_weight, mut out_bias) = unsafe {
        (
            ctx.output_option::<T>(&k.out_x)?,
            ctx.output_option::<P>(&k.out_weight)?,
            ctx.output_option::<P>(&k.out_bias)?,
        )
    };
    let mut scratch = ctx.scratch();
    let pieces = Pieces::new([n, c, l], 2);
    // For each channel and piece: Σ grad and Σ grad·(x − mean). Then the totals of each channel, in its first piece.
    let sums = scratch.slice_mut::<f64>(2 * c * pieces.count);
    let shared = SharedMut::new(sums);
    ctx.for_pieces(c * pieces.count, 1, pieces.samples * l, |task, _| {
        let (channel, piece) = (task / pieces.count, task % pieces.count);
        let (start, end) = pieces.range(piece, n);
        let mut total = (0.0, 0.0);
        for sample in start..end {
            let at = (sample * c + channel) * l;
            let (plain, product) = plane_sums(&grad[at..at + l], &x[at..at + l], mean[channel]);
            total = (total.0 + plain, total.1 + product);
        }
        // SAFETY: each task has its own two values.
        unsafe { shared.part(2 * task, 2) }.copy_from_slice(&[total.0, total.1]);
    });
    for channel in 0..c {
        let first = 2 * channel * pieces.count;
        for piece in 1..pieces.count {
            sums[first] += sums[first + 2 * piece];
            sums[first + 1] += sums[first + 2 * piece + 1];
        }
        if let Some(out) = &mut out_weight {
            out[channel] = P::put(real::<T>(sums[first + 1] * invstd[channel].to_f64()));
        }
        if let Some(out) = &mut out_bias {
            out[channel] = P::put(real::<T>(sums[first]));
        }
    }
    let Some(out_x) = out_x.map(SharedMut::new) else { return Ok(()) };
    let sums = &*sums;
    ctx.for_pieces(n * c, TASK.div_ceil(l.max(1)), l, |start, end| {
        for plane in start..end {
            let channel = plane % c;
            let (count, first) = ((n * l) as f64, 2 * channel * pieces.count);
            let invstd = invstd[channel].to_f64();
            let scale = invstd * weight.map_or(1.0, |w| w[channel].get().to_f64());
            let (mean_grad, slope) = match k.training {
                true => (sums[first] / count, sums[first + 1] / count * invstd * invstd),
                false => (0.0, 0.0),
            };
            let span = plane * l..(plane + 1) * l;
            let scalars = [real::<T>(scale), real::<T>(mean_grad), real::<T>(slope), mean[channel]];
            // SAFETY: planes are disjoint.
            let out = unsafe { out_x.part(plane * l, l) };
            plane_grad(&grad[span.clone()], &x[span], scalars, out);
        }
    });
    Ok(())
}

simd! {
    fn plane_sums<T: Float>(grad: &[T], x: &[T], mean: T::Compute) -> (f64, f64) = plane_sums_body;
    fn plane_grad<T: Float>(grad: &[T], x: &[T], scalars: [T::Compute; 4], out: &mut [T]) = plane_grad_body;
}

#[inline(always)]
fn plane_sums_body<S: Isa, T: Float>(grad: &[T], x: &[T], mean: T::Compute) -> (f64, f64) {
    grad_sums::<S, T>(grad, x, mean)
}

/// `out = scale·(grad − mean_grad − slope·(x − mean))`.
#[inline(always)]
fn plane_grad_body<S: Isa, T: Float>(grad: &[T], x: &[T], scalars: [T::Compute; 4], out: &mut [T]) {
    let [scale, mean_grad, slope, mean] = scalars;
    for ((o, g), x) in out.iter_mut().zip(grad).zip(x) {
        *o = T::put(scale * (-slope).fma::<S>(x.get() - mean, g.get() - mean_grad));
    }
}
