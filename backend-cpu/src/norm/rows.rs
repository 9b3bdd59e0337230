//! Layer and RMS normalisation of rows.

use memcore::backend::kernel::{LayerNorm, RmsNorm};
use memcore::error::Result;

use super::wide::Writing;
use super::{TASK, real, sum, sum_squares};
use crate::element::{Float, Real, float_type};
use crate::lanes::{Map, map3};
use crate::parallel::Plain;
use crate::past_caches::fence;
use crate::simd::{Isa, simd};
use crate::vector::Vector;
use crate::view::{Context, SharedMut, Stored};

/// `out = (x − mean)·rstd·weight + bias`.
pub(crate) fn layer_norm(ctx: &Context<'_>, k: &LayerNorm) -> Result<()> {
    float_type!(k.x.dtype, T => layer::<T>(ctx, k), else Ok(()))
}

fn layer<T: Float + Plain>(ctx: &Context<'_>, k: &LayerNorm) -> Result<()>
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
    let writing = Writing::in_type(out.as_ptr(), [rows, n]);
    let (out, mean, rstd) = (SharedMut::new(out), SharedMut::new(mean), SharedMut::new(rstd));
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        let mut scratch = ctx.scratch();
        let room = scratch.slice_mut::<T>(writing.room(n));
        for (start, end) in writing.at_once(start, end) {
            // SAFETY: pieces are disjoint rows.
            let (out, mean, rstd) = unsafe {
                (out.part(start * n, (end - start) * n), mean.part(start, end - start), rstd.part(start, end - start))
            };
            let x = &x[start * n..end * n];
            writing.row_in_type(out, room, |out| layer_rows((n, k.eps), x, (weight, bias), out, mean, rstd));
        }
        fence();
    });
    Ok(())
}

/// `out = x·rstd·weight`.
pub(crate) fn rms_norm(ctx: &Context<'_>, k: &RmsNorm) -> Result<()> {
    float_type!(k.x.dtype, T => rms::<T>(ctx, k), else Ok(()))
}

fn rms<T: Float + Plain>(ctx: &Context<'_>, k: &RmsNorm) -> Result<()> {
    let [rows, n] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (x, weight, out, rstd) = unsafe {
        let inputs = (ctx.input::<T>(&k.x)?, ctx.input_option::<T>(&k.weight)?);
        (inputs.0, inputs.1, ctx.output::<T>(&k.out)?, ctx.output::<T::Compute>(&k.rstd)?)
    };
    let writing = Writing::in_type(out.as_ptr(), [rows, n]);
    let (out, rstd) = (SharedMut::new(out), SharedMut::new(rstd));
    ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| {
        let mut scratch = ctx.scratch();
        let room = scratch.slice_mut::<T>(writing.room(n));
        for (start, end) in writing.at_once(start, end) {
            // SAFETY: pieces are disjoint rows.
            let (out, rstd) = unsafe { (out.part(start * n, (end - start) * n), rstd.part(start, end - start)) };
            let x = &x[start * n..end * n];
            writing.row_in_type(out, room, |out| rms_rows((n, k.eps), x, weight, out, rstd));
        }
        fence();
    });
    Ok(())
}

// `sizes` are the length and epsilon; `affine` is weight and bias.
simd! {
    fn layer_rows<T: Float>(
        sizes: (usize, f64), x: &[T], affine: (Option<&[T]>, Option<&[T]>), out: &mut [T],
        mean: &mut [T::Compute], rstd: &mut [T::Compute],
    ) = layer_rows_body;
    fn rms_rows<T: Float>(
        sizes: (usize, f64), x: &[T], weight: Option<&[T]>, out: &mut [T], rstd: &mut [T::Compute],
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
        affine::<S, T>(x, m, r, weight, bias, out);
    }
}

/// `out = (x − mean)·rstd·weight + bias`.
#[inline(always)]
fn affine<S: Isa, T: Float>(
    x: &[T],
    mean: T::Compute,
    rstd: T::Compute,
    weight: Option<&[T]>,
    bias: Option<&[T]>,
    out: &mut [T],
) {
    let n = x.len();
    let [all_x, all_weight, all_bias] = [x, weight.unwrap_or(x), bias.unwrap_or(x)].map(|all| all[..n].as_ptr());
    let (inputs, out) = ([all_x, all_weight, all_bias], out[..n].as_mut_ptr());
    // SAFETY: slices of `n` elements, none of which share anything with `out`.
    unsafe {
        match (weight, bias) {
            (Some(_), Some(_)) => map3::<S, T>(Affine::<_, true, true> { mean, rstd }, inputs, out, n),
            (Some(_), None) => map3::<S, T>(Affine::<_, true, false> { mean, rstd }, inputs, out, n),
            (None, Some(_)) => map3::<S, T>(Affine::<_, false, true> { mean, rstd }, inputs, out, n),
            (None, None) => map3::<S, T>(Affine::<_, false, false> { mean, rstd }, inputs, out, n),
        }
    }
}

/// `(x − mean)·rstd·weight + bias`, with the weight and the bias that there are.
#[derive(Clone, Copy)]
struct Affine<R, const WEIGHT: bool, const BIAS: bool> {
    mean: R,
    rstd: R,
}

impl<R: Real, const WEIGHT: bool, const BIAS: bool> Map<R> for Affine<R, WEIGHT, BIAS> {
    #[inline(always)]
    fn map<V: Vector<R>>(self, x: V, weight: V, bias: V) -> V {
        let (deviation, rstd) = (x.sub(V::splat(self.mean)), V::splat(self.rstd));
        match (WEIGHT, BIAS) {
            (true, true) => deviation.mul(rstd).fma(weight, bias),
            (true, false) => deviation.mul(rstd).mul(weight),
            (false, true) => deviation.fma(rstd, bias),
            (false, false) => deviation.mul(rstd),
        }
    }
}

#[inline(always)]
fn rms_rows_body<S: Isa, T: Float>(
    (n, eps): (usize, f64),
    x: &[T],
    weight: Option<&[T]>,
    out: &mut [T],
    rstd: &mut [T::Compute],
) {
    let zero = T::Compute::default();
    for (row, rstd) in rstd.iter_mut().enumerate() {
        let (x, out) = (&x[row * n..(row + 1) * n], &mut out[row * n..(row + 1) * n]);
        let r = real::<T>(1.0 / (sum_squares::<S, T>(x, zero) / n as f64 + eps).sqrt());
        *rstd = r;
        affine::<S, T>(x, zero, r, weight, None, out);
    }
}
