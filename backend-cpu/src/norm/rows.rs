//! Layer and RMS normalisation of rows.

use memcore::backend::kernel::{LayerNorm, RmsNorm};
use memcore::error::Result;

use super::wide::{Rooms, Writing, cut, wide};
use super::{TASK, real, sum, sum_squares};
use crate::element::{Float, Real, float_type};
use crate::past_caches::fence;
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
    let writing = Writing::of(out.as_ptr(), [rows, n]);
    let (out, mean, rstd) = (SharedMut::new(out), SharedMut::new(mean), SharedMut::new(rstd));
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        let mut rooms = Rooms::new(ctx);
        let room = writing.room(n);
        let [copy_x, copy_out, copy_weight, copy_bias] = cut(rooms.of(4 * room), room);
        let affine = (weight.map(|w| wide(w, copy_weight)), bias.map(|b| wide(b, copy_bias)));
        for (start, end) in writing.at_once(start, end) {
            // SAFETY: pieces are disjoint rows.
            let (out, mean, rstd) = unsafe {
                (out.part(start * n, (end - start) * n), mean.part(start, end - start), rstd.part(start, end - start))
            };
            let x = wide(&x[start * n..end * n], copy_x);
            writing.row(out, copy_out, |out| layer_rows((n, k.eps), x, affine, out, mean, rstd));
        }
        fence();
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
    let writing = Writing::of(out.as_ptr(), [rows, n]);
    let (out, rstd) = (SharedMut::new(out), SharedMut::new(rstd));
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        let mut rooms = Rooms::new(ctx);
        let room = writing.room(n);
        let [copy_x, copy_out, copy_weight] = cut(rooms.of(3 * room), room);
        let weight = weight.map(|w| wide(w, copy_weight));
        for (start, end) in writing.at_once(start, end) {
            // SAFETY: pieces are disjoint rows.
            let (out, rstd) = unsafe { (out.part(start * n, (end - start) * n), rstd.part(start, end - start)) };
            let x = wide(&x[start * n..end * n], copy_x);
            writing.row(out, copy_out, |out| rms_rows((n, k.eps), x, weight, out, rstd));
        }
        fence();
    });
    Ok(())
}

// `sizes` are the length and epsilon; `affine` is weight and bias.
simd! {
    fn layer_rows<R: Real>(
        sizes: (usize, f64), x: &[R], affine: (Option<&[R]>, Option<&[R]>), out: &mut [R], mean: &mut [R], rstd: &mut [R],
    ) = layer_rows_body;
    fn rms_rows<R: Real>(
        sizes: (usize, f64), x: &[R], weight: Option<&[R]>, out: &mut [R], rstd: &mut [R],
    ) = rms_rows_body;
}

#[inline(always)]
fn layer_rows_body<S: Isa, R: Real>(
    (n, eps): (usize, f64),
    x: &[R],
    (weight, bias): (Option<&[R]>, Option<&[R]>),
    out: &mut [R],
    mean: &mut [R],
    rstd: &mut [R],
) {
    for (row, (mean, rstd)) in mean.iter_mut().zip(rstd).enumerate() {
        let (x, out) = (&x[row * n..(row + 1) * n], &mut out[row * n..(row + 1) * n]);
        let m = real::<R>(sum::<S, R>(x) / n as f64);
        let r = real::<R>(1.0 / (sum_squares::<S, R>(x, m) / n as f64 + eps).sqrt());
        (*mean, *rstd) = (m, r);
        affine::<S, R>(x, m, r, weight, bias, out);
    }
}

/// `out = (x − mean)·rstd·weight + bias`.
#[inline(always)]
fn affine<S: Isa, R: Real>(x: &[R], mean: R, rstd: R, weight: Option<&[R]>, bias: Option<&[R]>, out: &mut [R]) {
    match (weight, bias) {
        (Some(weight), Some(bias)) => {
            for (((o, &x), &w), &b) in out.iter_mut().zip(x).zip(weight).zip(bias) {
                *o = ((x - mean) * rstd).fma::<S>(w, b);
            }
        }
        (Some(weight), None) => {
            for ((o, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                *o = (x - mean) * rstd * w;
            }
        }
        (None, Some(bias)) => {
            for ((o, &x), &b) in out.iter_mut().zip(x).zip(bias) {
                *o = (x - mean).fma::<S>(rstd, b);
            }
        }
        (None, None) => {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = (x - mean) * rstd;
            }
        }
    }
}

#[inline(always)]
fn rms_rows_body<S: Isa, R: Real>(
    (n, eps): (usize, f64),
    x: &[R],
    weight: Option<&[R]>,
    out: &mut [R],
    rstd: &mut [R],
) {
    let zero = R::default();
    for (row, rstd) in rstd.iter_mut().enumerate() {
        let (x, out) = (&x[row * n..(row + 1) * n], &mut out[row * n..(row + 1) * n]);
        let r = R::from_f64(1.0 / (sum_squares::<S, R>(x, zero) / n as f64 + eps).sqrt());
        *rstd = r;
        affine::<S, R>(x, zero, r, weight, None, out);
    }
}
