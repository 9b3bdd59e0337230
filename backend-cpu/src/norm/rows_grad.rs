//! Gradients of layer and RMS normalisation. RMS is layer normalisation with a mean of 0, and without the mean of the gradient.

use memcore::backend::Operand;
use memcore::backend::kernel::{LayerNormGrad, RmsNormGrad};
use memcore::error::Result;

use super::{STRETCH, Stretch, TASK, is_widened, real};
use crate::element::{Element, Float, Real, float_type};
use crate::parallel::SCRATCH_BYTES;
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Operands that both normalisations have.
struct Grad<'a> {
    grad: &'a Operand,
    x: &'a Operand,
    mean: Option<Operand>,
    rstd: &'a Operand,
    weight: &'a Option<Operand>,
    out_x: &'a Option<Operand>,
    out_weight: &'a Option<Operand>,
    out_bias: &'a Option<Operand>,
}

/// Gradients of layer normalisation.
pub(crate) fn layer_norm_grad(ctx: &Context<'_>, k: &LayerNormGrad) -> Result<()> {
    let grad = Grad {
        grad: &k.grad,
        x: &k.x,
        mean: Some(k.mean),
        rstd: &k.rstd,
        weight: &k.weight,
        out_x: &k.out_x,
        out_weight: &k.out_weight,
        out_bias: &k.out_bias,
    };
    float_type!(k.x.dtype, T => run::<T>(ctx, &grad), else Ok(()))
}

/// Gradients of RMS normalisation.
pub(crate) fn rms_norm_grad(ctx: &Context<'_>, k: &RmsNormGrad) -> Result<()> {
    let grad = Grad {
        grad: &k.grad,
        x: &k.x,
        mean: None,
        rstd: &k.rstd,
        weight: &k.weight,
        out_x: &k.out_x,
        out_weight: &k.out_weight,
        out_bias: &None,
    };
    float_type!(k.x.dtype, T => run::<T>(ctx, &grad), else Ok(()))
}

/// The operands as slices.
struct Slices<'a, T: Element> {
    n: usize,
    grad: &'a [T],
    x: &'a [T],
    mean: Option<&'a [T::Compute]>,
    rstd: &'a [T::Compute],
    weight: Option<&'a [T]>,
}

/// Rows that are summed in the compute type before the sums are added in f64.
const FEW_ROWS: usize = 16;

/// Most pieces into which rows are divided. Each piece has its own sums for the parameters.
const MAX_PIECES: usize = 16;

/// Most columns whose sums fit the scratch for at least one piece.
const MAX_COLUMNS: usize = SCRATCH_BYTES / (2 * size_of::<f64>());

/// Sums of the parameters' gradients over a few rows, in the compute type, for the columns from `left` on.
struct Sums<'a, R> {
    left: usize,
    weight: &'a mut [R],
    bias: &'a mut [R],
}

fn run<T: Float>(ctx: &Context<'_>, k: &Grad<'_>) -> Result<()> {
    let [rows, n] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let s = unsafe {
        Slices {
            n,
            grad: ctx.input::<T>(k.grad)?,
            x: ctx.input::<T>(k.x)?,
            mean: ctx.input_option::<T::Compute>(&k.mean)?,
            rstd: ctx.input::<T::Compute>(k.rstd)?,
            weight: ctx.input_option::<T>(k.weight)?,
        }
    };
    // SAFETY: as above, and each output is taken once.
    let (out_x, out_weight, out_bias) = unsafe {
        (ctx.output_option::<T>(k.out_x)?, ctx.output_option::<T>(k.out_weight)?, ctx.output_option::<T>(k.out_bias)?)
    };
    let out_x = out_x.map(SharedMut::new);
    if (out_weight.is_none() && out_bias.is_none()) || n == 0 {
        ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| input_rows(&s, start, end, out_x));
        return Ok(());
    }
    let (mut out_weight, mut out_bias) = (out_weight, out_bias);
    // Rows wider than the scratch are summed in several rounds of columns. The first round also makes `out_x`.
    for left in (0..n).step_by(MAX_COLUMNS) {
        let right = (left + MAX_COLUMNS).min(n);
        let part = |out: &mut Option<&mut [T]>| out.as_deref_mut().map(|o| SharedMut::new(&mut o[left..right]));
        let (weight, bias) = (part(&mut out_weight), part(&mut out_bias));
        columns(ctx, &s, rows, left..right, out_x.filter(|_| left == 0), weight, bias);
    }
    Ok(())
}

/// Computes `out_x` of all rows, and the parameters' gradients for some columns. Each piece of rows has its own sums, which are then joined
/// in order.
fn columns<T: Float>(
    ctx: &Context<'_>,
    s: &Slices<'_, T>,
    rows: usize,
    columns: std::ops::Range<usize>,
    out_x: Option<SharedMut<T>>,
    out_weight: Option<SharedMut<T>>,
    out_bias: Option<SharedMut<T>>,
) {
    let width = columns.len();
    let room = SCRATCH_BYTES / (2 * size_of::<f64>() * width);
    let pieces = (rows * s.n).div_ceil(TASK).clamp(1, MAX_PIECES.min(room));
    let rows_each = rows.div_ceil(pieces);
    let mut scratch = ctx.scratch();
    let sums = scratch.slice_mut::<f64>(pieces * 2 * width);
    let shared = SharedMut::new(sums);
    ctx.for_pieces(pieces, 1, rows_each * s.n, |piece, _| {
        // SAFETY: each piece has its own sums.
        let (weight, bias) = unsafe { shared.part(piece * 2 * width, 2 * width) }.split_at_mut(width);
        weight.fill(0.0);
        bias.fill(0.0);
        let (start, end) = ((piece * rows_each).min(rows), ((piece + 1) * rows_each).min(rows));
        // A few rows have sums in the compute type, which are then added in f64.
        let mut scratch = ctx.scratch();
        let (few_weight, few_bias) = scratch.slice_mut::<T::Compute>(2 * width).split_at_mut(width);
        for start in (start..end).step_by(FEW_ROWS) {
            few_weight.fill(T::Compute::default());
            few_bias.fill(T::Compute::default());
            for row in start..(start + FEW_ROWS).min(end) {
                // SAFETY: each row goes to one task.
                let out = out_x.map(|out_x| unsafe { out_x.part(row * s.n, s.n) });
                let sums = Sums { left: columns.start, weight: few_weight, bias: few_bias };
                row_of(s, row, out, sums);
            }
            for (total, few) in weight.iter_mut().chain(bias.iter_mut()).zip(few_weight.iter().chain(&*few_bias)) {
                *total += Real::to_f64(*few);
            }
        }
    });
    for (out, side) in [(out_weight, 0), (out_bias, 1)] {
        let Some(out) = out else { continue };
        for j in 0..width {
            let total: f64 = (0..pieces).map(|piece| sums[(piece * 2 + side) * width + j]).sum();
            // SAFETY: an element of the output's part, which only this thread writes.
            unsafe { *out.get().add(j) = T::put(real::<T>(total)) };
        }
    }
}

/// Computes `out_x` of rows `start..end`, if required.
fn input_rows<T: Float>(s: &Slices<'_, T>, start: usize, end: usize, out_x: Option<SharedMut<T>>) {
    let Some(out_x) = out_x else { return };
    // SAFETY: the caller gives each row to one task.
    let out = unsafe { out_x.part(start * s.n, (end - start) * s.n) };
    input_block(s, start, out);
}

simd! {
    fn input_block<T: Float>(s: &Slices<'_, T>, first: usize, out: &mut [T]) = input_block_body;
    fn row_of<T: Float>(s: &Slices<'_, T>, row: usize, out: Option<&mut [T]>, sums: Sums<'_, T::Compute>) = row_of_body;
}

#[inline(always)]
fn input_block_body<S: Isa, T: Float>(s: &Slices<'_, T>, first: usize, out: &mut [T]) {
    if s.n == 0 {
        return;
    }
    for (i, out) in out.chunks_exact_mut(s.n).enumerate() {
        let row = first + i;
        let span = row * s.n..(row + 1) * s.n;
        let (grad, x, rstd) = (&s.grad[span.clone()], &s.x[span], s.rstd[row]);
        let mean = s.mean.map_or(T::Compute::default(), |mean| mean[row]);
        input_row::<S, T>(grad, x, mean, rstd, s.mean.is_some(), s.weight, out);
    }
}

/// `out = rstd·(g − mean(g) − x̂·mean(g·x̂))`, without `mean(g)` for RMS.
#[inline(always)]
fn input_row<S: Isa, T: Float>(
    grad: &[T],
    x: &[T],
    mean: T::Compute,
    rstd: T::Compute,
    centred: bool,
    weight: Option<&[T]>,
    out: &mut [T],
) {
    let n = x.len() as f64;
    let (plain, product) = match weight {
        Some(weight) => super::weighted_sums::<S, T>(grad, x, weight, mean),
        None => super::grad_sums::<S, T>(grad, x, mean),
    };
    let mean_g = real::<T>(if centred { plain / n } else { 0.0 });
    // x̂ = (x − mean)·rstd occurs in the sum and in the result.
    let slope = real::<T>(product / n) * rstd * rstd;
    let numbers = [mean, rstd, mean_g, slope];
    if !is_widened::<T>() {
        return combine::<S, T>(grad, x, weight, numbers, out);
    }
    let (mut a, mut b, mut c) = (Stretch::new(), Stretch::new(), Stretch::new());
    let mut values = [T::Compute::default(); STRETCH];
    for at in (0..x.len()).step_by(STRETCH) {
        let span = at..(at + STRETCH).min(x.len());
        let values = &mut values[..span.len()];
        let weight = c.of_part::<S, T>(weight, &span);
        let (grad, x) = (a.of::<S, T>(&grad[span.clone()]), b.of::<S, T>(&x[span.clone()]));
        combine::<S, T::Compute>(grad, x, weight, numbers, values);
        T::put_all::<S>(values, &mut out[span]);
    }
}

/// `out = rstd·(grad·weight − mean_g − slope·(x − mean))`, number by number.
#[inline(always)]
fn combine<S: Isa, T: Float>(
    grad: &[T],
    x: &[T],
    weight: Option<&[T]>,
    [mean, rstd, mean_g, slope]: [T::Compute; 4],
    out: &mut [T],
) {
    match weight {
        Some(weight) => {
            for (((o, g), x), w) in out.iter_mut().zip(grad).zip(x).zip(weight) {
                let g = g.get().fma::<S>(w.get(), -mean_g);
                *o = T::put(rstd * (-slope).fma::<S>(x.get() - mean, g));
            }
        }
        None => {
            for ((o, g), x) in out.iter_mut().zip(grad).zip(x) {
                *o = T::put(rstd * (-slope).fma::<S>(x.get() - mean, g.get() - mean_g));
            }
        }
    }
}

/// Handles one row: computes its part of `out_x` if required, and adds `grad·x̂` and `grad` to the parameters' sums. It works stretch by stretch, so
/// that the second use of a number finds it in a register or in the first-level cache.
#[inline(always)]
fn row_of_body<S: Isa, T: Float>(s: &Slices<'_, T>, row: usize, out: Option<&mut [T]>, sums: Sums<'_, T::Compute>) {
    let span = row * s.n..(row + 1) * s.n;
    let (grad, x, rstd) = (&s.grad[span.clone()], &s.x[span], s.rstd[row]);
    let mean = s.mean.map_or(T::Compute::default(), |mean| mean[row]);
    if let Some(out) = out {
        input_row::<S, T>(grad, x, mean, rstd, s.mean.is_some(), s.weight, out);
    }
    let right = sums.left + sums.weight.len();
    let (grad, x) = (&grad[sums.left..right], &x[sums.left..right]);
    if !is_widened::<T>() {
        return row_terms::<S, T>(grad, x, mean, rstd, sums.weight, sums.bias);
    }
    let (mut wide_grad, mut wide_x) = (Stretch::new(), Stretch::new());
    for at in (0..grad.len()).step_by(STRETCH) {
        let span = at..(at + STRETCH).min(grad.len());
        let (grad, x) = (wide_grad.of::<S, T>(&grad[span.clone()]), wide_x.of::<S, T>(&x[span.clone()]));
        row_terms::<S, T::Compute>(grad, x, mean, rstd, &mut sums.weight[span.clone()], &mut sums.bias[span]);
    }
}

/// Adds one row's `grad·x̂` and `grad` to the sums.
#[inline(always)]
fn row_terms<S: Isa, T: Float>(
    grad: &[T],
    x: &[T],
    mean: T::Compute,
    rstd: T::Compute,
    weight: &mut [T::Compute],
    bias: &mut [T::Compute],
) {
    for (((w, b), g), x) in weight.iter_mut().zip(bias).zip(grad).zip(x) {
        let g = g.get();
        *w = (g * rstd).fma::<S>(x.get() - mean, *w);
        *b = *b + g;
    }
}
