//! Softmax over rows of 16-bit floats. A row is widened once, into the thread's scratch, and rounded once.

use std::mem::MaybeUninit;

use crate::element::Float;
use crate::lanes::{Dot, Largest, RUN, Sum, fold, fold2};
use crate::parallel::SCRATCH_BYTES;
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

use super::columns::TASK;

/// Length of the longest row: two of them fit a scratch.
const LONGEST: usize = SCRATCH_BYTES / size_of::<f32>() / 2;

/// Elements that several loops go over in turn: of five slices they fit the first-level cache.
const STRETCH: usize = 1024;

/// True if rows of `n` elements are computed here.
pub(super) fn fits(n: usize) -> bool {
    n <= LONGEST
}

/// Computes rows of `n` elements. `out` is `x` itself or shares nothing with it.
pub(super) fn forward<T: Float<Compute = f32>>(
    ctx: &Context<'_>,
    log: bool,
    [rows, n]: [usize; 2],
    x: SharedMut<T>,
    out: SharedMut<T>,
) {
    ctx.for_pieces(rows, TASK.div_ceil(n), n, |start, end| {
        let mut scratch = ctx.scratch();
        let wide = scratch.slice_mut::<f32>(n);
        for row in start..end {
            // SAFETY: rows are disjoint and exist; the first borrow ends before the second begins.
            let [max, sum] = exponentials(log, unsafe { x.view(row * n, n) }, wide);
            // SAFETY: as above.
            finish(log, [max, sum], wide, unsafe { out.part(row * n, n) });
        }
    });
}

/// Computes gradients of rows of `n` elements. `out` is one of the others or shares nothing with them.
pub(super) fn backward<T: Float<Compute = f32>>(
    ctx: &Context<'_>,
    log: bool,
    [rows, n]: [usize; 2],
    y: SharedMut<T>,
    grad: SharedMut<T>,
    out: SharedMut<T>,
) {
    ctx.for_pieces(rows, TASK.div_ceil(n), n, |start, end| {
        let mut scratch = ctx.scratch();
        let (wide_y, wide_grad) = scratch.slice_mut::<f32>(2 * n).split_at_mut(n);
        for row in start..end {
            // SAFETY: rows are disjoint and exist; these borrows end before the last begins.
            let total = unsafe { total(log, y.view(row * n, n), grad.view(row * n, n), wide_y, wide_grad) };
            // SAFETY: as above.
            gradient(log, total, wide_y, wide_grad, unsafe { out.part(row * n, n) });
        }
    });
}

/// 16-bit floats.
trait Half: Float<Compute = f32> {}
impl<T: Float<Compute = f32>> Half for T {}

simd! {
    fn exponentials<T: Half>(log: bool, x: &[T], wide: &mut [f32]) -> [f32; 2] = exponentials_body;
    fn finish<T: Half>(log: bool, sums: [f32; 2], wide: &mut [f32], out: &mut [T]) = finish_body;
    fn total<T: Half>(log: bool, y: &[T], grad: &[T], wide_y: &mut [f32], wide_grad: &mut [f32]) -> f32 = total_body;
    fn gradient<T: Half>(log: bool, total: f32, y: &[f32], grad: &mut [f32], out: &mut [T]) = gradient_body;
}

#[inline(always)]
fn widen<S: Isa, T: Half>(from: &[T], to: &mut [f32]) {
    // SAFETY: numbers may be written as if they were not there yet.
    T::get_all::<S>(from, unsafe { &mut *(to as *mut [f32] as *mut [MaybeUninit<f32>]) });
}

/// Returns the row's maximum and the sum of `eˣ⁻ᵐᵃˣ`. `wide` then holds the exponentials, or for the logarithm the row itself.
#[inline(always)]
fn exponentials_body<S: Isa, T: Half>(log: bool, x: &[T], wide: &mut [f32]) -> [f32; 2] {
    widen::<S, T>(x, wide);
    let max = fold::<S, f32>(Largest, wide);
    let mut sum = 0.0;
    let mut kept = [0.0; RUN];
    for wide in wide.chunks_mut(RUN) {
        if log {
            let kept = &mut kept[..wide.len()];
            exponentials_of::<S>(wide, max, kept);
            sum += f64::from(fold::<S, f32>(Sum, kept));
        } else {
            for x in wide.iter_mut() {
                *x = crate::element::Real::exp_nonpositive::<S>(*x - max);
            }
            sum += f64::from(fold::<S, f32>(Sum, wide));
        }
    }
    [max, if log { sum.ln() as f32 } else { (1.0 / sum) as f32 }]
}

#[inline(always)]
fn exponentials_of<S: Isa>(x: &[f32], max: f32, out: &mut [f32]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = crate::element::Real::exp_nonpositive::<S>(x - max);
    }
}

#[inline(always)]
fn finish_body<S: Isa, T: Half>(log: bool, [max, sum]: [f32; 2], wide: &mut [f32], out: &mut [T]) {
    if log {
        for x in wide.iter_mut() {
            *x = (*x - max) - sum;
        }
    } else {
        for x in wide.iter_mut() {
            *x *= sum;
        }
    }
    T::put_all::<S>(wide, out);
}

/// `Σ grad·y`; for the logarithm `Σ grad`. Both are widened a stretch at a time, which the sum finds in the first-level cache.
#[inline(always)]
fn total_body<S: Isa, T: Half>(log: bool, y: &[T], grad: &[T], wide_y: &mut [f32], wide_grad: &mut [f32]) -> f32 {
    let mut total = 0.0;
    let wide = wide_y.chunks_mut(STRETCH).zip(wide_grad.chunks_mut(STRETCH));
    for ((y, grad), (wide_y, wide_grad)) in y.chunks(STRETCH).zip(grad.chunks(STRETCH)).zip(wide) {
        widen::<S, T>(y, wide_y);
        widen::<S, T>(grad, wide_grad);
        total += f64::from(if log { fold::<S, f32>(Sum, wide_grad) } else { fold2::<S, f32>(Dot, wide_y, wide_grad) });
    }
    total as f32
}

/// `y·(grad − total)`; for the logarithm `grad − e^y·total`.
#[inline(always)]
fn gradient_body<S: Isa, T: Half>(log: bool, total: f32, y: &[f32], grad: &mut [f32], out: &mut [T]) {
    for ((y, grad), out) in y.chunks(STRETCH).zip(grad.chunks_mut(STRETCH)).zip(out.chunks_mut(STRETCH)) {
        for (g, &y) in grad.iter_mut().zip(y) {
            *g = if log { *g - total * crate::element::Real::exp::<S>(y) } else { y * (*g - total) };
        }
        T::put_all::<S>(grad, out);
    }
}
