//! Gradients of layer and RMS normalisation. RMS is layer normalisation with a mean of 0, and without the mean of the gradient.

use memcore::backend::Operand;
use memcore::backend::kernel::{LayerNormGrad, RmsNormGrad};
use memcore::error::Result;

use super::wide::{Rooms, Writing, cut, wide};
use super::{TASK, real};
use crate::element::{Element, Float, Real, float_type};
use crate::lanes::RUN;
use crate::parallel::SCRATCH_BYTES;
use crate::past_caches::fence;
use crate::simd::{Isa, simd};
use crate::vector::{MAX_N, Vector};
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
    /// How rows of `out_x` are written.
    writing: Writing,
}

/// A row in the compute type.
#[derive(Clone, Copy)]
struct Row<'a, R> {
    grad: &'a [R],
    x: &'a [R],
    /// 0 for RMS.
    mean: R,
    rstd: R,
    /// False for RMS, which subtracts no mean of the gradient.
    centred: bool,
    weight: Option<&'a [R]>,
}

impl<T: Float> Slices<'_, T> {
    fn weight_in<'r>(&'r self, room: &'r mut [T::Compute]) -> Option<&'r [T::Compute]> {
        self.weight.map(|weight| wide(weight, room))
    }

    fn row<'r>(
        &'r self,
        row: usize,
        weight: Option<&'r [T::Compute]>,
        grad: &'r mut [T::Compute],
        x: &'r mut [T::Compute],
    ) -> Row<'r, T::Compute> {
        let span = row * self.n..(row + 1) * self.n;
        Row {
            grad: wide(&self.grad[span.clone()], grad),
            x: wide(&self.x[span], x),
            mean: self.mean.map_or(T::Compute::default(), |mean| mean[row]),
            rstd: self.rstd[row],
            centred: self.mean.is_some(),
            weight,
        }
    }
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
    let (grad, x, mean, rstd, weight) = unsafe {
        (
            ctx.input::<T>(k.grad)?,
            ctx.input::<T>(k.x)?,
            ctx.input_option::<T::Compute>(&k.mean)?,
            ctx.input::<T::Compute>(k.rstd)?,
            ctx.input_option::<T>(k.weight)?,
        )
    };
    // SAFETY: as above, and each output is taken once.
    let (out_x, out_weight, out_bias) = unsafe {
        (ctx.output_option::<T>(k.out_x)?, ctx.output_option::<T>(k.out_weight)?, ctx.output_option::<T>(k.out_bias)?)
    };
    let writing = Writing::over(out_x.as_deref().map_or(std::ptr::null(), <[T]>::as_ptr), [rows, n]);
    let s = Slices { n, grad, x, mean, rstd, weight, writing };
    let out_x = out_x.map(SharedMut::new);
    if (out_weight.is_none() && out_bias.is_none()) || n == 0 {
        ctx.for_pieces(rows, TASK.div_ceil(n.max(1)), n, |start, end| input_rows(ctx, &s, start, end, out_x));
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
        let mut rooms = Rooms::new(ctx);
        let room = s.writing.room(s.n);
        let (few, copies) = rooms.room(2 * width + 4 * room).split_at_mut(2 * width);
        let [few_weight, few_bias] = cut(few, width);
        let [copy_weight, copy_grad, copy_x, copy_out] = cut(copies, room);
        let own_weight = s.weight_in(copy_weight);
        for start in (start..end).step_by(FEW_ROWS) {
            few_weight.fill(T::Compute::default());
            few_bias.fill(T::Compute::default());
            for row in start..(start + FEW_ROWS).min(end) {
                let row_in = s.row(row, own_weight, copy_grad, copy_x);
                let sums = Sums { left: columns.start, weight: few_weight, bias: few_bias };
                match out_x {
                    // SAFETY: each row goes to one task.
                    Some(out_x) => s.writing.row(unsafe { out_x.part(row * s.n, s.n) }, copy_out, |out| {
                        row_of(row_in, Some(out), sums);
                    }),
                    None => row_of(row_in, None, sums),
                }
            }
            for (total, few) in weight.iter_mut().chain(bias.iter_mut()).zip(few_weight.iter().chain(&*few_bias)) {
                *total += Real::to_f64(*few);
            }
        }
        fence();
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
fn input_rows<T: Float>(ctx: &Context<'_>, s: &Slices<'_, T>, start: usize, end: usize, out_x: Option<SharedMut<T>>) {
    let Some(out_x) = out_x else { return };
    let mut rooms = Rooms::new(ctx);
    let room = s.writing.room(s.n);
    let [copy_weight, copy_grad, copy_x, copy_out] = cut(rooms.room(4 * room), room);
    let weight = s.weight_in(copy_weight);
    for row in start..end {
        let row_in = s.row(row, weight, copy_grad, copy_x);
        // SAFETY: the caller gives each row to one task.
        let out = unsafe { out_x.part(row * s.n, s.n) };
        s.writing.row(out, copy_out, |out| input_row(row_in, out));
    }
    fence();
}

simd! {
    fn input_row<R: Real>(row: Row<'_, R>, out: &mut [R]) = input_row_body;
    fn row_of<R: Real>(row: Row<'_, R>, out: Option<&mut [R]>, sums: Sums<'_, R>) = row_of_body;
}

/// `out = rstd·(g − mean(g) − x̂·mean(g·x̂))`, without `mean(g)` for RMS.
#[inline(always)]
fn input_row_body<S: Isa, R: Real>(row: Row<'_, R>, out: &mut [R]) {
    let Row { grad, x, mean, weight, .. } = row;
    let totals = match weight {
        Some(weight) => super::weighted_sums::<S, R>(grad, x, weight, mean),
        None => super::grad_sums::<S, R>(grad, x, mean),
    };
    input_of::<S, R>(row, totals, out);
}

/// Computes a row of `out_x` from `Σ g` and `Σ g·(x − mean)`.
#[inline(always)]
fn input_of<S: Isa, R: Real>(row: Row<'_, R>, (plain, product): (f64, f64), out: &mut [R]) {
    let Row { grad, x, mean, rstd, centred, weight } = row;
    let n = x.len() as f64;
    let mean_g = real::<R>(if centred { plain / n } else { 0.0 });
    // x̂ = (x − mean)·rstd occurs in the sum and in the result.
    let slope = real::<R>(product / n) * rstd * rstd;
    match weight {
        Some(weight) => {
            for (((o, g), &x), &w) in out.iter_mut().zip(grad).zip(x).zip(weight) {
                *o = rstd * (-slope).fma::<S>(x - mean, g.fma::<S>(w, -mean_g));
            }
        }
        None => {
            for ((o, &g), &x) in out.iter_mut().zip(grad).zip(x) {
                *o = rstd * (-slope).fma::<S>(x - mean, g - mean_g);
            }
        }
    }
}

/// Handles one row: computes its part of `out_x` if required, and adds `grad·x̂` and `grad` to the parameters' sums.
#[inline(always)]
fn row_of_body<S: Isa, R: Real>(row: Row<'_, R>, out: Option<&mut [R]>, sums: Sums<'_, R>) {
    let Row { grad, x, mean, rstd, weight, .. } = row;
    match (weight, out) {
        (Some(weight), Some(out)) if sums.weight.len() == x.len() => {
            let mut totals = (0.0, 0.0);
            for start in (0..x.len()).step_by(RUN) {
                let run = start..x.len().min(start + RUN);
                let inputs = [grad, x, weight].map(|all| &all[run.clone()]);
                let outputs = [&mut sums.weight[run.clone()], &mut sums.bias[run]];
                let [plain, product] = sums_of_run::<R, R::Vector<S>>(inputs, mean, rstd, outputs);
                totals.0 += plain.to_f64();
                totals.1 += product.to_f64();
            }
            return input_of::<S, R>(row, totals, out);
        }
        (_, Some(out)) => input_row_body::<S, R>(row, out),
        (_, None) => {}
    }
    let right = sums.left + sums.weight.len();
    let (grad, x) = (&grad[sums.left..right], &x[sums.left..right]);
    for (((w, b), &g), &x) in sums.weight.iter_mut().zip(sums.bias).zip(grad).zip(x) {
        *w = (g * rstd).fma::<S>(x - mean, *w);
        *b = *b + g;
    }
}

/// Returns `Σ grad·weight` and `Σ grad·weight·(x − mean)` of a run, and adds `grad·x̂` and `grad` to the parameters' sums on the way: a pass of its own
/// would load all of it again.
#[inline(always)]
fn sums_of_run<R: Real, V: Vector<R>>(
    [grad, x, weight]: [&[R]; 3],
    mean: R,
    rstd: R,
    [to_weight, to_bias]: [&mut [R]; 2],
) -> [R; 2] {
    let n = x.len();
    assert!([grad.len(), weight.len(), to_weight.len(), to_bias.len()] == [n; 4], "sums of a row's part");
    let (means, rstds) = (V::splat(mean), V::splat(rstd));
    // Two of each, because an addition takes longer than the rest of a step.
    let mut partial = [[V::splat(R::default()); 2]; 2];
    let mut at = 0;
    while at + 2 * V::N <= n {
        for [plain, product] in &mut partial {
            // SAFETY: this vector ends before `n`, the length of all slices.
            unsafe {
                let (g, w) = (V::load(grad.as_ptr().add(at)), V::load(weight.as_ptr().add(at)));
                let deviation = V::load(x.as_ptr().add(at)).sub(means);
                let weighted = g.mul(w);
                *plain = plain.add(weighted);
                *product = weighted.fma(deviation, *product);
                let (to_weight, to_bias) = (to_weight.as_mut_ptr().add(at), to_bias.as_mut_ptr().add(at));
                g.mul(rstds).fma(deviation, V::load(to_weight)).store(to_weight);
                V::load(to_bias).add(g).store(to_bias);
            }
            at += V::N;
        }
    }
    let mut lanes = [[R::default(); MAX_N]; 2];
    for (side, lanes) in lanes.iter_mut().enumerate() {
        // SAFETY: there is room for `MAX_N` ≥ `V::N` numbers.
        unsafe { partial[0][side].add(partial[1][side]).store(lanes.as_mut_ptr()) };
    }
    let mut totals = [R::default(); 2];
    for (total, lanes) in totals.iter_mut().zip(&lanes) {
        for &lane in &lanes[..V::N] {
            *total = *total + lane;
        }
    }
    for i in at..n {
        let (deviation, weighted) = (x[i] - mean, grad[i] * weight[i]);
        totals = [totals[0] + weighted, totals[1] + weighted * deviation];
        to_weight[i] = to_weight[i] + grad[i] * rstd * deviation;
        to_bias[i] = to_bias[i] + grad[i];
    }
    totals
}
