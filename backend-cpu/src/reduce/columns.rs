//! Reductions of groups that lie side by side: sums over the first axes, such as the gradient of a bias over all rows of a batch.

use memcore::backend::kernel::ReduceOp;

use super::plan::{Kept, Plan, Total, finish_pieces};
use crate::element::{Element, Number, larger, smaller};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Columns per task.
const TILE: usize = 256;

/// Number of tiles below which columns are cut into pieces.
const MANY: usize = 16;

/// Fewest elements per piece of a tile.
const PIECE: usize = 16 << 10;

/// Rows that are joined in the compute type before the result is joined in the wider type.
const ROWS: usize = 128;

pub(super) fn reduce<T: Element, O: Element<Compute = T::Compute>>(
    ctx: &Context<'_>,
    plan: &Plan,
    x: SharedMut<T>,
    out: SharedMut<O>,
) {
    let columns = plan.kept[plan.rank - 1];
    let outer = plan.groups / columns.size;
    let tiles = columns.size.div_ceil(TILE);
    let tasks = outer * tiles;
    let width = TILE.min(columns.size);
    let pieces = if tasks >= MANY { 1 } else { (plan.count * width / PIECE).clamp(1, MANY) };
    let piece_len = plan.count.div_ceil(pieces);
    let mut scratch = ctx.scratch();
    // Fewer than `MANY` tiles in at most `MANY` pieces fit. A single piece writes its results itself.
    let partials = scratch.slice_mut::<Total<T>>(if pieces == 1 { 0 } else { pieces * plan.groups });
    let shared = SharedMut::new(partials);
    ctx.for_pieces(pieces * tasks, 1, piece_len * width, |task, _| {
        let (piece, tile, slice) = (task / tasks, task % tasks % tiles, task % tasks / tiles);
        let (first, start) = (tile * TILE, (piece * piece_len).min(plan.count));
        let (n, len) = (TILE.min(columns.size - first), piece_len.min(plan.count - start));
        let (from, to) = plan.group(plan.rank - 1, slice);
        // SAFETY: the tile's columns lie in bounds; each task writes its own results or partial results.
        unsafe {
            let mut totals = [plan.start::<Total<T>>(); TILE];
            tile_totals(plan, columns, x.get().add(from + first * columns.x), start, len, &mut totals[..n]);
            if pieces == 1 {
                let out = out.get().add(to + first * columns.out);
                for (j, &total) in totals[..n].iter().enumerate() {
                    *out.add(j * columns.out) = plan.finish::<O>(total);
                }
            } else {
                shared.part(piece * plan.groups + slice * columns.size + first, n).copy_from_slice(&totals[..n]);
            }
        }
    });
    if pieces > 1 {
        finish_pieces(plan, partials, out);
    }
}

/// Joins rows `start..start + len` of the columns that begin at `x` to `totals`.
///
/// # Safety
/// They lie in bounds.
unsafe fn tile_totals<T: Element>(
    plan: &Plan,
    columns: Kept,
    x: *const T,
    start: usize,
    len: usize,
    totals: &mut [Total<T>],
) {
    if len == 0 {
        return;
    }
    let mut sums = [plan.start::<T::Compute>(); TILE];
    let sums = &mut sums[..totals.len()];
    let mut pending = 0;
    let mut flush = |sums: &mut [T::Compute]| {
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = plan.join(*total, std::mem::replace(sum, plan.start()).widen());
        }
    };
    plan.reduced.for_each(start, len, |offset, stride, _, n| {
        let mut done = 0;
        while done < n {
            let rows = (ROWS - pending).min(n - done);
            // SAFETY: the runs of a checked layout lie in bounds.
            unsafe {
                let x = x.add(offset + done * stride);
                if columns.x == 1 {
                    add_rows(plan.op, SharedMut::from_ptr(x.cast_mut()), stride, rows, sums);
                } else {
                    add_strided_rows(plan, x, (stride, columns.x), rows, sums);
                }
            }
            done += rows;
            pending += rows;
            if pending == ROWS {
                flush(sums);
                pending = 0;
            }
        }
    });
    flush(sums);
}

simd! {
    fn add_rows<T: Element>(op: ReduceOp, x: SharedMut<T>, stride: usize, rows: usize, sums: &mut [T::Compute]) = add_rows_body;
}

/// Adds four rows at a time, so that the partial results are loaded and stored a quarter as often.
#[inline(always)]
fn add_rows_body<S: Isa, T: Element>(
    op: ReduceOp,
    x: SharedMut<T>,
    stride: usize,
    rows: usize,
    sums: &mut [T::Compute],
) {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => fold_rows(x, stride, rows, sums, |x| x, |a, b| a.plus(b)),
        ReduceOp::SumSquares => fold_rows(x, stride, rows, sums, |x| x.times(x), |a, b| a.plus(b)),
        ReduceOp::Max => fold_rows(x, stride, rows, sums, |x| x, larger),
        ReduceOp::Min => fold_rows(x, stride, rows, sums, |x| x, smaller),
    }
}

#[inline(always)]
fn fold_rows<T: Element>(
    x: SharedMut<T>,
    stride: usize,
    rows: usize,
    sums: &mut [T::Compute],
    value: impl Fn(T::Compute) -> T::Compute,
    join: impl Fn(T::Compute, T::Compute) -> T::Compute,
) {
    let n = sums.len();
    // SAFETY: the caller passes rows that lie in bounds; nobody writes them.
    let row = |r: usize| unsafe { x.view(r * stride, n) };
    let mut r = 0;
    while r + 4 <= rows {
        let (x0, x1, x2, x3) = (&row(r)[..n], &row(r + 1)[..n], &row(r + 2)[..n], &row(r + 3)[..n]);
        for j in 0..n {
            let low = join(value(x0[j].get()), value(x1[j].get()));
            let high = join(value(x2[j].get()), value(x3[j].get()));
            sums[j] = join(sums[j], join(low, high));
        }
        r += 4;
    }
    while r < rows {
        let x = row(r);
        for j in 0..n {
            sums[j] = join(sums[j], value(x[j].get()));
        }
        r += 1;
    }
}

/// # Safety
/// `rows` rows from `x` on lie in bounds, `strides` apart (rows, columns).
unsafe fn add_strided_rows<T: Element>(
    plan: &Plan,
    x: *const T,
    strides: (usize, usize),
    rows: usize,
    sums: &mut [T::Compute],
) {
    for r in 0..rows {
        for (j, sum) in sums.iter_mut().enumerate() {
            // SAFETY: passed on to the caller.
            let x = unsafe { *x.add(r * strides.0 + j * strides.1) }.get();
            *sum = plan.join(*sum, if plan.op == ReduceOp::SumSquares { x.times(x) } else { x });
        }
    }
}
