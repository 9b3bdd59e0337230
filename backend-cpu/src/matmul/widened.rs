//! Products of 16-bit floats: blocks of both operands are widened to f32 in the thread's scratch, the tile of the output is
//! accumulated there, and rounded once.

use super::job::Job;
use super::product::{Mat, MatMut, product};
use super::tiles::{even, for_each_tile};
use crate::element::Float;
use crate::simd::{Isa, simd};
use crate::view::Context;

/// Largest tile of the output, and the terms taken at a time.
const ROWS: usize = 128;
const COLS: usize = 256;
const TERMS: usize = 256;

simd! {
    /// `to[i] = from[i]`, exactly.
    pub(crate) fn widen<T: Float>(from: &[T], to: &mut [T::Compute]) = widen_body;
    /// `to[i] = from[i]`, rounded to nearest even.
    pub(crate) fn narrow<T: Float>(from: &[T::Compute], to: &mut [T]) = narrow_body;
}

#[inline(always)]
fn widen_body<S: Isa, T: Float>(from: &[T], to: &mut [T::Compute]) {
    for (x, y) in from.iter().zip(to) {
        *y = x.get();
    }
}

#[inline(always)]
fn narrow_body<S: Isa, T: Float>(from: &[T::Compute], to: &mut [T]) {
    for (x, y) in from.iter().zip(to) {
        *y = T::put(*x);
    }
}

/// Widens `rows` × `cols` of a matrix one of whose steps is 1 into `to`, without turning it, and gives the copy.
///
/// # Safety
/// The elements are in bounds and no one writes them; `to` is long enough.
pub(crate) unsafe fn widen_block<T: Float>(
    from: Mat<T>,
    rows: usize,
    cols: usize,
    to: &mut [T::Compute],
) -> Mat<T::Compute> {
    if from.col != 1 && from.row == 1 {
        // SAFETY: the same elements.
        return unsafe { widen_block(from.transposed(), cols, rows, to) }.transposed();
    }
    for i in 0..rows {
        let to = &mut to[i * cols..][..cols];
        if from.col == 1 {
            // SAFETY: a row is contiguous and in bounds.
            widen(unsafe { std::slice::from_raw_parts(from.at(i, 0).ptr(), cols) }, to);
        } else {
            for (j, y) in to.iter_mut().enumerate() {
                // SAFETY: in bounds.
                *y = unsafe { *from.at(i, j).ptr() }.get();
            }
        }
    }
    Mat::new(to.as_ptr(), cols, 1)
}

pub(super) fn run<T: Float<Compute = f32>>(ctx: &Context<'_>, job: &Job<T, f32>) {
    let [m, n, k] = job.sizes;
    let mut tile = [even(m, ROWS, 8), even(n, COLS, 16)];
    while job.batch * m.div_ceil(tile[0]) * n.div_ceil(tile[1]) < 8 && tile[1] > 32 && tile[0] * tile[1] * k > 1 << 20 {
        tile[1] = even(n, tile[1] / 2, 16);
    }
    for_each_tile(ctx, job.batch, job.sizes, tile, |batch, rows, cols| {
        let mut scratch = ctx.scratch();
        let scratch = scratch.slice_mut::<f32>(ROWS * COLS + ROWS * TERMS + TERMS * COLS);
        let (sums, rest) = scratch.split_at_mut(ROWS * COLS);
        let (wide_a, wide_b) = rest.split_at_mut(ROWS * TERMS);
        let (m, n) = (rows.len(), cols.len());
        let acc = MatMut::new(sums.as_mut_ptr(), n, 1);
        let a = job.a.0.skip(batch * job.a.1).at(rows.start, 0);
        let b = job.b.0.skip(batch * job.b.1).at(0, cols.start);
        let out = job.out.0.skip(batch * job.out.1).at(rows.start, cols.start);
        // SAFETY: the tile is this task's alone and lies in the output, blocks lie in the operands, which were validated; the
        // parts of the scratch are large enough for the largest tile.
        unsafe {
            // Without anything to start from, the first block overwrites the accumulators.
            let empty = job.beta == 0.0 && job.bias.is_none() && k > 0;
            if !empty {
                start(job, [m, n], cols.start, out, acc);
            }
            for p in (0..k).step_by(TERMS) {
                let terms = TERMS.min(k - p);
                let a = widen_block(a.at(0, p), m, terms, wide_a);
                let b = widen_block(b.at(p, 0), terms, n, wide_b);
                product([m, n, terms], job.alpha, a, b, if empty && p == 0 { 0.0 } else { 1.0 }, acc);
            }
            for i in 0..m {
                let sums = std::slice::from_raw_parts(acc.at(i, 0).ptr(), n);
                narrow(sums, std::slice::from_raw_parts_mut(out.at(i, 0).ptr(), n));
            }
        }
    });
}

/// Sets the accumulators to `beta·out + bias`.
///
/// # Safety
/// The tile lies in the output, from column `first` on, and no one else touches it; the accumulators are this thread's.
unsafe fn start<T: Float<Compute = f32>>(
    job: &Job<T, f32>,
    [m, n]: [usize; 2],
    first: usize,
    out: MatMut<T>,
    acc: MatMut<f32>,
) {
    // SAFETY: the bias has a value for each column.
    let bias = job.bias.map(|bias| unsafe { std::slice::from_raw_parts(bias.at(0, first).ptr(), n) });
    for i in 0..m {
        // SAFETY: row i of the accumulators.
        let sums = unsafe { std::slice::from_raw_parts_mut(acc.at(i, 0).ptr(), n) };
        if job.beta != 0.0 {
            // SAFETY: row i of the tile, which is contiguous.
            widen(unsafe { std::slice::from_raw_parts(out.at(i, 0).ptr(), n) }, sums);
            sums.iter_mut().for_each(|x| *x *= job.beta);
            sums.iter_mut().zip(bias.unwrap_or(&[])).for_each(|(x, bias)| *x += bias.get());
        } else if let Some(bias) = bias {
            widen(bias, sums);
        } else {
            sums.fill(0.0);
        }
    }
}
