//! Products of 16-bit floats. Parts of both operands are packed into words in the thread's scratch ([`crate::panels`]). The tile of the output is
//! summed in f32, and rounded once.

use super::job::Job;
use super::tiles::{even, for_each_tile};
use crate::element::Float;
use crate::panels::pack::{self, Packs, Part};
use crate::panels::{Blocks, DEPTH, Kept, ROW, ROWS, Sums, WIDTH, Word, multiply, panel_len};
use crate::parallel::SCRATCH_BYTES;
use crate::product::{Mat, MatMut};
use crate::simd::{Isa, simd};
use crate::view::Context;

/// Rows and columns of the largest tile of the output. With its blocks, such a tile stays in a core's second-level cache.
const TILE: [usize; 2] = [40 * ROWS, 8 * WIDTH];

/// Number of multiply-adds that is worth its own task, although that task packs both operands.
const WORTH: usize = 1 << 20;

impl<T> From<Mat<T>> for Part<T> {
    fn from(mat: Mat<T>) -> Self {
        Self { ptr: mat.ptr(), row: mat.row, col: mat.col }
    }
}

/// Returns the sizes of tiles: as even as possible, and small enough to give a few threads work.
fn tile_sizes(batch: usize, [m, n, k]: [usize; 3]) -> [usize; 2] {
    let mut tile = [even(m, TILE[0], ROWS), even(n, TILE[1], WIDTH)];
    while batch * m.div_ceil(tile[0]) * n.div_ceil(tile[1]) < 8 && tile[0] * tile[1] * k > WORTH {
        let side = if tile[1] > tile[0] { 1 } else { 0 };
        let half = even(tile[side], tile[side].div_ceil(2), [ROWS, WIDTH][side]);
        if half >= tile[side] {
            break;
        }
        tile[side] = half;
    }
    tile
}

/// Computes a whole product, in words of `W`.
pub(super) fn run<W: Word<Sum = f32>, T: Packs<W>>(ctx: &Context<'_>, job: &Job<T, f32>) {
    let k = job.sizes[2];
    let terms = DEPTH * W::TERMS;
    for_each_tile(ctx, job.batch, job.sizes, tile_sizes(job.batch, job.sizes), |batch, rows, cols| {
        let (m, n) = (rows.len(), cols.len());
        let mut scratch = ctx.scratch();
        let (words, sums) = scratch.slice_mut::<u32>(SCRATCH_BYTES / 4).split_at_mut(SCRATCH_BYTES / 4 - m * n);
        // SAFETY: words of f32 sums have 32 bits, any of which are a value.
        let (words, sums) = unsafe { (words.align_to_mut::<W>().1, sums.align_to_mut::<f32>().1) };
        let mut kept = Kept::new(sums, n);
        let (left, rest) = words.split_at_mut(pack::left_len(m));
        let (right, rest) = rest.split_at_mut(pack::right_len(n));
        let a = job.a.0.skip(batch * job.a.1).at(rows.start, 0);
        let b = job.b.0.skip(batch * job.b.1).at(0, cols.start);
        let out = job.out.0.skip(batch * job.out.1).at(rows.start, cols.start);
        let end = End {
            sizes: [m, n],
            alpha: job.alpha,
            beta: job.beta,
            bias: job.bias.map(|bias| bias.at(0, cols.start)),
            out,
        };
        for p in (0..k.max(1)).step_by(terms) {
            let taken = terms.min(k - p);
            let depth = taken.div_ceil(W::TERMS);
            // SAFETY: these parts of the operands exist, which were validated; the tile is this task's alone.
            unsafe {
                let turned = pack::left(a.at(0, p).into(), [m, taken], left);
                pack::right(b.at(p, 0).into(), [taken, n], right, &mut rest[..WIDTH * ROW]);
                let (left, right) = (left.as_ptr(), right.as_ptr());
                let blocks = Blocks { left, turned, right, panel: panel_len(depth), depth, rows: m, columns: n };
                let (first, last) = (p == 0, p + taken == k);
                multiply(&blocks, |row, column, tile| {
                    let sizes = spans([m, n], [row, column]);
                    if kept.join(tile, [row, column], sizes, first, last) {
                        finish(&end, tile, [row, column]);
                    }
                });
            }
        }
    });
}

/// Last step for the sums of a tile. The holder alone uses the output's tile, whose rows are contiguous. The bias has a value for each column.
struct End<T> {
    sizes: [usize; 2],
    alpha: f32,
    beta: f32,
    bias: Option<Mat<T>>,
    out: MatMut<T>,
}

simd! {
    fn finish<T: Halves>(end: &End<T>, tile: &Sums<f32>, at: [usize; 2]) = finish_body;
}

/// Types whose sums are f32.
trait Halves: Float<Compute = f32> {}
impl<T: Float<Compute = f32>> Halves for T {}

/// Returns the numbers of rows and columns of the tile at `row` and `column`.
#[inline(always)]
fn spans([m, n]: [usize; 2], [row, column]: [usize; 2]) -> [usize; 2] {
    [ROWS.min(m - row), WIDTH.min(n - column)]
}

/// Computes `out = alpha·sums + (beta·out + bias)`. Does not read `out` if `beta` is 0.
#[inline(always)]
fn finish_body<S: Isa, T: Float<Compute = f32>>(end: &End<T>, tile: &Sums<f32>, at: [usize; 2]) {
    let [rows, columns] = spans(end.sizes, at);
    // SAFETY: the bias has a value for each column, side by side (`End`).
    let bias = end.bias.map(|bias| unsafe { std::slice::from_raw_parts(bias.at(0, at[1]).ptr(), columns) });
    for (i, sums) in tile.0[..rows].iter().enumerate() {
        // SAFETY: a row of the tile's part of the output lies side by side, and is the caller's alone (`End`).
        let out = unsafe { std::slice::from_raw_parts_mut(end.out.at(at[0] + i, at[1]).ptr(), columns) };
        if columns == WIDTH {
            // A length that the compiler knows.
            finish_row::<T>(end, &sums[..WIDTH], bias, &mut out[..WIDTH]);
        } else {
            finish_row::<T>(end, &sums[..columns], bias, out);
        }
    }
}

#[inline(always)]
fn finish_row<T: Float<Compute = f32>>(end: &End<T>, sums: &[f32], bias: Option<&[T]>, out: &mut [T]) {
    let (alpha, beta, n) = (end.alpha, end.beta, out.len());
    match bias {
        Some(bias) if beta != 0.0 => {
            for j in 0..n {
                out[j] = T::put(alpha * sums[j] + (beta * out[j].get() + bias[j].get()));
            }
        }
        Some(bias) => {
            for j in 0..n {
                out[j] = T::put(alpha * sums[j] + bias[j].get());
            }
        }
        None if beta != 0.0 => {
            for j in 0..n {
                out[j] = T::put(alpha * sums[j] + beta * out[j].get());
            }
        }
        None => {
            for j in 0..n {
                out[j] = T::put(alpha * sums[j]);
            }
        }
    }
}
