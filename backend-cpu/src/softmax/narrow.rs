//! Softmax over rows of 16-bit floats. Forward, a row is widened once, into the thread's scratch, and rounded once; gradients are computed in registers.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::element::{Float, Real};
use crate::lanes::{Dot, Largest, Map, RUN, Sum, fold, fold2, map3};
use crate::parallel::SCRATCH_BYTES;
use crate::simd::{Isa, simd};
use crate::vector::Vector;
use crate::view::{Context, SharedMut};

use super::columns::TASK;

/// Length of the longest row: two of them fit a scratch.
const LONGEST: usize = SCRATCH_BYTES / size_of::<f32>() / 2;

/// Elements that several loops go over in turn, from the first-level cache.
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
        for row in start..end {
            // SAFETY: rows are disjoint and exist; these borrows end before anything is written.
            let total = unsafe { total(log, y.view(row * n, n), grad.view(row * n, n)) };
            if log {
                log_gradient(total, row * n..(row + 1) * n, [y, grad], out);
            } else {
                gradient(total, row * n..(row + 1) * n, [y, grad], out);
            }
        }
    });
}

/// 16-bit floats.
trait Half: Float<Compute = f32> {}
impl<T: Float<Compute = f32>> Half for T {}

simd! {
    fn exponentials<T: Half>(log: bool, x: &[T], wide: &mut [f32]) -> [f32; 2] = exponentials_body;
    fn finish<T: Half>(log: bool, sums: [f32; 2], wide: &mut [f32], out: &mut [T]) = finish_body;
    fn total<T: Half>(log: bool, y: &[T], grad: &[T]) -> f32 = total_body;
    fn gradient<T: Half>(total: f32, row: Range<usize>, inputs: [SharedMut<T>; 2], out: SharedMut<T>) = gradient_body;
    fn log_gradient<T: Half>(
        total: f32, row: Range<usize>, inputs: [SharedMut<T>; 2], out: SharedMut<T>,
    ) = log_gradient_body;
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

/// `Σ grad·y`; for the logarithm `Σ grad`.
#[inline(always)]
fn total_body<S: Isa, T: Half>(log: bool, y: &[T], grad: &[T]) -> f32 {
    let mut total = 0.0;
    for (y, grad) in y.chunks(STRETCH).zip(grad.chunks(STRETCH)) {
        total += f64::from(if log { fold::<S, T>(Sum, grad) } else { fold2::<S, T>(Dot, y, grad) });
    }
    total as f32
}

/// `y·(grad − total)`
#[inline(always)]
fn gradient_body<S: Isa, T: Half>(total: f32, row: Range<usize>, inputs: [SharedMut<T>; 2], out: SharedMut<T>) {
    let [y, grad] = inputs.map(|input| input.get().wrapping_add(row.start).cast_const());
    // SAFETY: the row exists and is the task's; `out` is one of the others or shares nothing with them.
    unsafe { map3::<S, T>(Gradient { total }, [y, grad, y], out.get().add(row.start), row.len()) };
}

#[derive(Clone, Copy)]
struct Gradient<R> {
    total: R,
}

impl<R: Real> Map<R> for Gradient<R> {
    #[inline(always)]
    fn map<V: Vector<R>>(self, y: V, grad: V, _z: V) -> V {
        y.mul(grad.sub(V::splat(self.total)))
    }
}

/// `grad − e^y·total`. Vectors have no exponential, so that the compiler makes them of loops over a stretch.
#[inline(always)]
fn log_gradient_body<S: Isa, T: Half>(total: f32, row: Range<usize>, [y, grad]: [SharedMut<T>; 2], out: SharedMut<T>) {
    let [mut wide_y, mut wide_grad] = [[0.0; STRETCH]; 2];
    for at in row.clone().step_by(STRETCH) {
        let len = STRETCH.min(row.end - at);
        let (wide_y, wide_grad) = (&mut wide_y[..len], &mut wide_grad[..len]);
        // SAFETY: the row exists and is the task's; these borrows end before the last begins.
        unsafe {
            widen::<S, T>(y.view(at, len), wide_y);
            widen::<S, T>(grad.view(at, len), wide_grad);
        }
        for (g, &y) in wide_grad.iter_mut().zip(&*wide_y) {
            *g -= total * Real::exp::<S>(y);
        }
        // SAFETY: as above.
        T::put_all::<S>(wide_grad, unsafe { out.part(at, len) });
    }
}
