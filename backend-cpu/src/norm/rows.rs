//! Layer and RMS normalisation of rows.

use memcore::backend::kernel::{LayerNorm, RmsNorm};
use memcore::error::Result;

use super::{STRETCH, Stretch, TASK, is_widened, real, sum, sum_squares};
use crate::element::{Float, Number, Real, float_type};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut, Stored};

/// `out = (x − mean)·rstd·weight + bias`.
pub(crate) fn layer_norm(ctx: &Context<'_>, k: &LayerNorm) -> Result<()> {
    float_type!(k.x.dtype, T => layer::<T>(ctx, k), else Ok(()))
}

fn layer<T: Float>(ctx: &Context<'_>, k: &LayerNorm) -> Result<()>
where
    T::Compute: Stored,
{
    let [rows, n] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let (x, weight, bias) =
        unsafe { (ctx.input::<T>(&k.x)?, ctx.input_option::<T>(&k.weight)?, ctx.input_option::<T>(&k.bias)?) };
    // SAFETY: as above, and each output is taken once.
    let (out, mean, rstd) =
        unsafe { (ctx.output::<T>(&k.out)?, ctx.output(&k.mean)?, ctx.output::<T::Compute>(&k.rstd)?) };
    let (out, mean, rstd) = (SharedMut::new(out), SharedMut::new(mean), SharedMut::new(rstd));
    let eps = k.eps;
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        // SAFETY: pieces are disjoint rows.
        let (out, mean, rstd) = unsafe {
            (out.part(start * n, (end - start) * n), mean.part(start, end - start), rstd.part(start, end - start))
        };
        layer_rows((n, eps), &x[start * n..end * n], (weight, bias), out, mean, rstd);
    });
    Ok(())
}

/// `out = x·rstd·weight`.
pub(crate) fn rms_norm(ctx: &Context<'_>, k: &RmsNorm) -> Result<()> {
    float_type!(k.x.dtype, T => rms::<T>(ctx, k), else Ok(()))
}

fn rms<T: Float>(ctx: &Context<'_>, k: &RmsNorm) -> Result<()> {
    let [rows, n] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (x, weight, out, rstd) = unsafe {
        let inputs = (ctx.input::<T>(&k.x)?, ctx.input_option::<T>(&k.weight)?);
        (inputs.0, inputs.1, ctx.output::<T>(&k.out)?, ctx.output::<T::Compute>(&k.rstd)?)
    };
    let (out, rstd) = (SharedMut::new(out), SharedMut::new(rstd));
    let eps = k.eps;
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        // SAFETY: pieces are disjoint rows.
        let (out, rstd) = unsafe { (out.part(start * n, (end - start) * n), rstd.part(start, end - start)) };
        rms_rows(n, eps, &x[start * n..end * n], weight, out, rstd);
    });
    Ok(())
}

// `sizes` are the length and epsilon; `affine` is weight and bias.
simd! {
    fn layer_rows<T: Float>(
        sizes: (usize, f64), x: &[T], affine: (Option<&[T]>, Option<&[T]>),
        out: &mut [T], mean: &mut [T::Compute], rstd: &mut [T::Compute],
    ) = layer_rows_body;
    fn rms_rows<T: Float>(
        n: usize, eps: f64, x: &[T], weight: Option<&[T]>, out: &mut [T], rstd: &mut [T::Compute],
    ) = rms_rows_body;
}

#[inline(always)]
fn layer_rows_body<S: Isa, T: Float>(
    (n, eps): (usize, f64),
    x: &[T],
    (weight, bias): (Option<&[T]>, Option<&[T]>),
    out: &mut [T],
    mean: &mut [T::Compute],
    rstd: &mut [T::Compute],
) {
    for (row, (mean, rstd)) in mean.iter_mut().zip(rstd).enumerate() {
        let (x, out) = (&x[row * n..(row + 1) * n], &mut out[row * n..(row + 1) * n]);
        let m = real::<T>(sum::<S, T>(x) / n as f64);
        let r = real::<T>(1.0 / (sum_squares::<S, T>(x, m) / n as f64 + eps).sqrt());
        (*mean, *rstd) = (m, r);
        affine_row::<S, T>(x, m, r, weight, bias, out);
    }
}

/// `out = (x − mean)·rstd·weight + bias`.
#[inline(always)]
fn affine_row<S: Isa, T: Float>(
    x: &[T],
    mean: T::Compute,
    rstd: T::Compute,
    weight: Option<&[T]>,
    bias: Option<&[T]>,
    out: &mut [T],
) {
    if !is_widened::<T>() {
        return affine::<S, T>(x, mean, rstd, weight, bias, out);
    }
    let (mut a, mut b, mut c) = (Stretch::new(), Stretch::new(), Stretch::new());
    let mut values = [T::Compute::default(); STRETCH];
    for at in (0..x.len()).step_by(STRETCH) {
        let span = at..(at + STRETCH).min(x.len());
        let values = &mut values[..span.len()];
        let (weight, bias) = (b.of_part::<S, T>(weight, &span), c.of_part::<S, T>(bias, &span));
        affine::<S, T::Compute>(a.of::<S, T>(&x[span.clone()]), mean, rstd, weight, bias, values);
        T::put_all::<S>(values, &mut out[span]);
    }
}

/// As [`affine_row`], number by number.
#[inline(always)]
fn affine<S: Isa, T: Float>(
    x: &[T],
    mean: T::Compute,
    rstd: T::Compute,
    weight: Option<&[T]>,
    bias: Option<&[T]>,
    out: &mut [T],
) {
    match (weight, bias) {
        (Some(weight), Some(bias)) => {
            for (((o, x), w), b) in out.iter_mut().zip(x).zip(weight).zip(bias) {
                *o = T::put(((x.get() - mean) * rstd).fma::<S>(w.get(), b.get()));
            }
        }
        (Some(weight), None) => {
            for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
                *o = T::put((x.get() - mean) * rstd * w.get());
            }
        }
        (None, Some(bias)) => {
            for ((o, x), b) in out.iter_mut().zip(x).zip(bias) {
                *o = T::put((x.get() - mean).fma::<S>(rstd, b.get()));
            }
        }
        (None, None) => {
            for (o, x) in out.iter_mut().zip(x) {
                *o = T::put((x.get() - mean) * rstd);
            }
        }
    }
}

#[inline(always)]
fn rms_rows_body<S: Isa, T: Float>(
    n: usize,
    eps: f64,
    x: &[T],
    weight: Option<&[T]>,
    out: &mut [T],
    rstd: &mut [T::Compute],
) {
    let zero = <T::Compute as Default>::default();
    for (row, rstd) in rstd.iter_mut().enumerate() {
        let (x, out) = (&x[row * n..(row + 1) * n], &mut out[row * n..(row + 1) * n]);
        let r = <T::Compute as Number>::from_f64(1.0 / (sum_squares::<S, T>(x, zero) / n as f64 + eps).sqrt());
        *rstd = r;
        affine_row::<S, T>(x, zero, r, weight, None, out);
    }
}
