//! Softmax over an axis that is not the last one. The elements of a group are `inner` apart, and groups lie side by side.
//!
//! A task takes a panel of neighbouring columns from top to bottom three times: for the maxima, for the sums, for the results. Everything
//! that it reads is contiguous, and each step is a loop over the columns.

use memcore::error::Result;

use crate::element::{Real, larger};
use crate::simd::{Isa, simd};
use crate::stream::{BLOCK, Block, Reader, Writer};
use crate::view::Context;

/// Elements per task, in `softmax.rs` too.
pub(super) const TASK: usize = 16 << 10;

/// Most columns of a panel.
const WIDTH: usize = 256;

/// Rows that are summed in the compute type before their sums are added in f64.
const ROWS: usize = 128;

/// `n` rows, `inner` elements apart, of `width` columns from element `first` on.
#[derive(Clone, Copy)]
struct Panel {
    first: usize,
    width: usize,
    n: usize,
    inner: usize,
}

impl Panel {
    /// Calls `f(start, len)` for stretches of whole rows, from top to bottom: `len` ≤ [`BLOCK`] contiguous elements, starting at element
    /// `start`.
    fn for_each(&self, mut f: impl FnMut(usize, usize)) {
        let rows = if self.width == self.inner { ROWS.min(BLOCK / self.width) } else { 1 };
        for row in (0..self.n).step_by(rows) {
            f(self.first + row * self.inner, rows.min(self.n - row) * self.width);
        }
    }
}

/// Calls `f` for every panel of `[outer, n, inner]`, on several threads if there are many elements. There is at least one element.
fn for_panels(ctx: &Context<'_>, [outer, n, inner]: [usize; 3], f: impl Fn(Panel) + Sync + Send) {
    let width = WIDTH.min(inner);
    let each = inner.div_ceil(width);
    ctx.for_pieces(outer * each, TASK.div_ceil(n * width), n * width, |start, end| {
        for panel in start..end {
            let (slice, column) = (panel / each, panel % each * width);
            f(Panel { first: slice * n * inner + column, width: width.min(inner - column), n, inner });
        }
    });
}

/// Sums of columns: of the latest rows in the compute type, of all earlier rows in f64.
struct Sums<C> {
    latest: [C; WIDTH],
    rows: usize,
    before: [f64; WIDTH],
    width: usize,
}

impl<C: Real> Sums<C> {
    fn new(width: usize) -> Self {
        Self { latest: [C::default(); WIDTH], rows: 0, before: [0.0; WIDTH], width }
    }

    /// Returns the sums to which `len` elements of whole rows are added.
    fn taking(&mut self, len: usize) -> &mut [C] {
        self.rows += len / self.width;
        if self.rows > ROWS {
            self.settle();
            self.rows = len / self.width;
        }
        &mut self.latest[..self.width]
    }

    fn settle(&mut self) {
        for (before, latest) in self.before.iter_mut().zip(&mut self.latest) {
            *before += std::mem::take(latest).to_f64();
        }
    }

    /// Returns `f` of each column's sum, in the compute type.
    fn finished(mut self, f: impl Fn(f64) -> f64) -> [C; WIDTH] {
        self.settle();
        self.before.map(|sum| C::from_f64(f(sum)))
    }
}

/// Computes softmax, or its logarithm, over the middle of `dims`.
pub(super) fn forward<C: Real>(
    ctx: &Context<'_>,
    log: bool,
    dims: [usize; 3],
    x: &Reader<C>,
    out: &Writer<C>,
) -> Result<()> {
    for_panels(ctx, dims, |panel| {
        // SAFETY: panels are disjoint; core validated the aliasing.
        unsafe { forward_panel(log, panel, x, out) };
    });
    Ok(())
}

/// # Safety
/// The panel exists and is ours alone to write.
unsafe fn forward_panel<C: Real>(log: bool, panel: Panel, x: &Reader<C>, out: &Writer<C>) {
    let (mut a, mut o) = (Block::new(), Block::new());
    let mut max = [C::LOWEST; WIDTH];
    let max = &mut max[..panel.width];
    panel.for_each(|start, len| {
        // SAFETY: passed on to the caller.
        rows_max(unsafe { x.read(start, len, &mut a) }, max);
    });
    // The exponentials stay in the output until their sums are known, if the output does not round them.
    let wait = !log && out.is_direct();
    let mut sums = Sums::<C>::new(panel.width);
    panel.for_each(|start, len| {
        let sums = sums.taking(len);
        // SAFETY: passed on to the caller.
        let x = unsafe { x.read(start, len, &mut a) };
        if wait {
            // SAFETY: as above.
            unsafe { out.write(start, len, &mut o, |out| exp_rows(x, max, sums, out)) };
        } else {
            sum_exp_rows(x, max, sums);
        }
    });
    let scale = sums.finished(|sum| if log { sum.ln() } else { 1.0 / sum });
    let scale = &scale[..panel.width];
    panel.for_each(|start, len| {
        if wait {
            // SAFETY: passed on to the caller; a direct writer finds what it wrote.
            return unsafe { out.write(start, len, &mut o, |out| scale_rows(out, scale)) };
        }
        // SAFETY: passed on to the caller.
        unsafe {
            let x = x.read(start, len, &mut a);
            out.write(start, len, &mut o, |out| result_rows(log, x, max, scale, out));
        }
    });
}

/// Computes the gradient: `y·(grad − Σ grad·y)`; for the logarithm `grad − e^y·Σ grad`.
pub(super) fn backward<C: Real>(
    ctx: &Context<'_>,
    log: bool,
    dims: [usize; 3],
    [y, grad]: [&Reader<C>; 2],
    out: &Writer<C>,
) -> Result<()> {
    for_panels(ctx, dims, |panel| {
        // SAFETY: panels are disjoint; core validated the aliasing.
        unsafe { backward_panel(log, panel, [y, grad], out) };
    });
    Ok(())
}

/// # Safety
/// The panel exists and is ours alone to write.
unsafe fn backward_panel<C: Real>(log: bool, panel: Panel, [y, grad]: [&Reader<C>; 2], out: &Writer<C>) {
    let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
    let mut sums = Sums::<C>::new(panel.width);
    panel.for_each(|start, len| {
        // SAFETY: passed on to the caller.
        let (y, grad) = unsafe { (y.read(start, len, &mut a), grad.read(start, len, &mut b)) };
        add_rows(log, y, grad, sums.taking(len));
    });
    let total = sums.finished(|sum| sum);
    let total = &total[..panel.width];
    panel.for_each(|start, len| {
        // SAFETY: passed on to the caller.
        unsafe {
            let (y, grad) = (y.read(start, len, &mut a), grad.read(start, len, &mut b));
            out.write(start, len, &mut o, |out| grad_rows(log, y, grad, total, out));
        }
    });
}

// Slices of elements are whole rows. The slices of one number per column have the width of a row.
simd! {
    fn rows_max<R: Real>(x: &[R], max: &mut [R]) = rows_max_body;
    fn exp_rows<R: Real>(x: &[R], max: &[R], sums: &mut [R], out: &mut [R]) = exp_rows_body;
    fn sum_exp_rows<R: Real>(x: &[R], max: &[R], sums: &mut [R]) = sum_exp_rows_body;
    fn scale_rows<R: Real>(out: &mut [R], scale: &[R]) = scale_rows_body;
    fn result_rows<R: Real>(log: bool, x: &[R], max: &[R], scale: &[R], out: &mut [R]) = result_rows_body;
    fn add_rows<R: Real>(log: bool, y: &[R], grad: &[R], sums: &mut [R]) = add_rows_body;
    fn grad_rows<R: Real>(log: bool, y: &[R], grad: &[R], total: &[R], out: &mut [R]) = grad_rows_body;
}

#[inline(always)]
fn rows_max_body<S: Isa, R: Real>(x: &[R], max: &mut [R]) {
    for x in x.chunks_exact(max.len()) {
        for (max, &x) in max.iter_mut().zip(x) {
            *max = larger(*max, x);
        }
    }
}

/// Computes `out = eˣ⁻ᵐᵃˣ`, and adds it to the sums.
#[inline(always)]
fn exp_rows_body<S: Isa, R: Real>(x: &[R], max: &[R], sums: &mut [R], out: &mut [R]) {
    let width = max.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        for (((o, &x), &max), sum) in out.iter_mut().zip(x).zip(max).zip(&mut *sums) {
            *o = (x - max).exp_nonpositive::<S>();
            *sum = *sum + *o;
        }
    }
}

#[inline(always)]
fn sum_exp_rows_body<S: Isa, R: Real>(x: &[R], max: &[R], sums: &mut [R]) {
    for x in x.chunks_exact(max.len()) {
        for ((&x, &max), sum) in x.iter().zip(max).zip(&mut *sums) {
            *sum = *sum + (x - max).exp_nonpositive::<S>();
        }
    }
}

#[inline(always)]
fn scale_rows_body<S: Isa, R: Real>(out: &mut [R], scale: &[R]) {
    for out in out.chunks_exact_mut(scale.len()) {
        for (o, &scale) in out.iter_mut().zip(scale) {
            *o = *o * scale;
        }
    }
}

/// Computes the results if the output does not hold the exponentials. `scale` is the inverse of the sum, or its logarithm.
#[inline(always)]
fn result_rows_body<S: Isa, R: Real>(log: bool, x: &[R], max: &[R], scale: &[R], out: &mut [R]) {
    let width = max.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let columns = out.iter_mut().zip(x).zip(max).zip(scale);
        if log {
            for (((o, &x), &max), &log_sum) in columns {
                *o = (x - max) - log_sum;
            }
        } else {
            for (((o, &x), &max), &factor) in columns {
                *o = (x - max).exp_nonpositive::<S>() * factor;
            }
        }
    }
}

#[inline(always)]
fn add_rows_body<S: Isa, R: Real>(log: bool, y: &[R], grad: &[R], sums: &mut [R]) {
    let width = sums.len();
    for (y, grad) in y.chunks_exact(width).zip(grad.chunks_exact(width)) {
        if log {
            for (sum, &g) in sums.iter_mut().zip(grad) {
                *sum = *sum + g;
            }
        } else {
            for ((sum, &y), &g) in sums.iter_mut().zip(y).zip(grad) {
                *sum = g.fma::<S>(y, *sum);
            }
        }
    }
}

#[inline(always)]
fn grad_rows_body<S: Isa, R: Real>(log: bool, y: &[R], grad: &[R], total: &[R], out: &mut [R]) {
    let width = total.len();
    for ((y, grad), out) in y.chunks_exact(width).zip(grad.chunks_exact(width)).zip(out.chunks_exact_mut(width)) {
        let columns = out.iter_mut().zip(y).zip(grad).zip(total);
        if log {
            for (((o, &y), &g), &total) in columns {
                *o = (-total).fma::<S>(y.exp::<S>(), g);
            }
        } else {
            for (((o, &y), &g), &total) in columns {
                *o = y * (g - total);
            }
        }
    }
}
