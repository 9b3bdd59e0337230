//! Weight gradient, as a product whose sum goes over the points of all images. Its rows are places of the window in each channel, its columns are
//! outputs. The elements that a place sees are copied from the staged source run by run. The gradient is transposed so that its outputs lie side by
//! side.
//!
//! Tasks are blocks of rows and of outputs. If those are few, the points are cut into parts too, whose sums are added in order at the end.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::plan::Plan;
use super::stage::{CHUNK, Cells, Run, Stage, Staging, cell_at, copy_runs, stage};
use crate::element::{Float, Number};
use crate::panels::pack::{Packs, left_len, pieces, right_len, turn};
use crate::panels::{Blocks, DEPTH, Kept, ROW, ROWS, Sums, WIDTH, Word, multiply};
use crate::parallel::{SCRATCH_BYTES, SHARED_BYTES};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Maximum number of parts of the points with their own sums; and the intended number of tasks, if there is enough work.
const PARTS: usize = 16;
const TASKS: usize = 16;
/// Maximum number of rows of a task.
const MOST_ROWS: usize = 12 * ROWS;
/// Maximum number of points of a block: those of words of two.
const POINTS: usize = 2 * DEPTH;

/// Computes `out[o, c, y, x]`: the sum, over images and points, of `grad` times the element that the convolution's place `y, x` sees.
pub(super) fn run<W: Word, T: Packs<W> + Cells<<T as Packs<W>>::Piece>>(
    ctx: &Context<'_>,
    plan: &Plan,
    x: &[T],
    grad: &[T],
    out: &mut [T],
) {
    let points = plan.images * plan.points();
    if out.is_empty() {
        return;
    }
    let pass = Pass { plan, x, grad, cut: Cut::new::<W>(plan, points, out.len()) };
    let cut = pass.cut;
    let mut shared = ctx.threads.shared_room();
    let sums = &mut shared.slice_mut::<W::Sum>(SHARED_BYTES / size_of::<W::Sum>())
        [..if cut.parts > 1 { cut.parts * out.len() } else { 0 }];
    let (partial, whole, len) = (SharedMut::new(sums), SharedMut::new(out), out.len());
    let (row_blocks, output_blocks) = (plan_rows(plan).div_ceil(cut.rows), plan.outputs.div_ceil(cut.outputs));
    let work = cut.rows * cut.outputs * points.div_ceil(cut.parts) / 4;
    ctx.for_pieces(plan.groups * row_blocks * output_blocks * cut.parts, 1, work, |i, _| {
        let (part, i) = (i % cut.parts, i / cut.parts);
        let (first_output, i) = (i % output_blocks * cut.outputs, i / output_blocks);
        let (first_row, group) = (i % row_blocks * cut.rows, i / row_blocks);
        let task = Task {
            pass: &pass,
            group,
            rows: first_row..(first_row + cut.rows).min(plan_rows(plan)),
            outputs: first_output..(first_output + cut.outputs).min(plan.outputs),
        };
        let blocks = cut.blocks.div_ceil(cut.parts);
        let blocks = (part * blocks).min(cut.blocks)..((part + 1) * blocks).min(cut.blocks);
        task.run::<W>(ctx, blocks, points, |output, row, sums| {
            let at = (group * plan.outputs + output) * plan_rows(plan) + row;
            // SAFETY: these rows of this output are this task's alone, in this part's sums or in the output.
            unsafe {
                if cut.parts > 1 {
                    partial.part(part * len + at, sums.len()).copy_from_slice(sums);
                } else {
                    round::<T>(sums, whole.part(at, sums.len()));
                }
            }
        });
    });
    if cut.parts > 1 {
        let sums = &*sums;
        ctx.for_pieces(len, 4096, cut.parts, |start, end| {
            // SAFETY: a task for each piece.
            let out = unsafe { whole.part(start, end - start) };
            for (i, to) in (start..end).zip(out) {
                let total = (1..cut.parts).fold(sums[i], |total, part| total.plus(sums[part * len + i]));
                *to = T::put(total);
            }
        });
    }
}

/// Returns the number of rows: places of the window in all channels of a group.
fn plan_rows(plan: &Plan) -> usize {
    plan.channels * plan.places()
}

/// Division of the work into tasks and blocks, which depends on sizes alone.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Rows and outputs of a task.
    rows: usize,
    outputs: usize,
    /// Points of a block, and number of blocks.
    points: usize,
    blocks: usize,
    parts: usize,
    /// Pieces of a thread's scratch for the source.
    staged: usize,
}

impl Cut {
    fn new<W: Word>(plan: &Plan, points: usize, results: usize) -> Self {
        let room = SCRATCH_BYTES / size_of::<W>();
        let most = [room / 4 / DEPTH / WIDTH * WIDTH, ((room >> 12) * 9 / 8).min(MOST_ROWS) / ROWS * ROWS];
        let outputs = even(plan.outputs, most[0], WIDTH);
        let rows = even(plan_rows(plan), most[1], ROWS);
        let block = DEPTH * W::TERMS;
        let blocks = points.div_ceil(block).max(1);
        let tasks = plan.groups * plan_rows(plan).div_ceil(rows) * plan.outputs.div_ceil(outputs);
        let fit = SHARED_BYTES / size_of::<W::Sum>() / results;
        let parts = TASKS.div_ceil(tasks).min(PARTS).min(blocks).min(fit).max(1);
        let taken = right_len(most[0]) + left_len(most[1]) + CHUNK + most[0] * most[1] + WIDTH * ROW;
        Self { rows, outputs, points: block, blocks, parts, staged: (room - taken) * W::TERMS }
    }
}

/// Returns how many of `all` to take at a time, a multiple of `unit` and at most `most`, so that each time has about as many.
fn even(all: usize, most: usize, unit: usize) -> usize {
    all.div_ceil(all.div_ceil(most)).next_multiple_of(unit).min(most)
}

struct Pass<'a, T> {
    plan: &'a Plan,
    x: &'a [T],
    grad: &'a [T],
    cut: Cut,
}

/// Task: some rows and outputs of a group.
struct Task<'a, T> {
    pass: &'a Pass<'a, T>,
    group: usize,
    rows: Range<usize>,
    outputs: Range<usize>,
}

impl<T: Float> Task<'_, T> {
    /// Sums over the points of `blocks`. Calls `take(output, row, sums)` with the sums of each output, from a row on.
    fn run<W: Word>(
        &self,
        ctx: &Context<'_>,
        blocks: Range<usize>,
        points: usize,
        take: impl Fn(usize, usize, &[W::Sum]),
    ) where
        T: Packs<W> + Cells<<T as Packs<W>>::Piece>,
    {
        let cut = self.pass.cut;
        let (rows, outputs) = (self.rows.len(), self.outputs.len());
        let mut scratch = ctx.scratch();
        let room = scratch.slice_mut::<W>(SCRATCH_BYTES / size_of::<W>());
        let (right, room) = room.split_at_mut(right_len(outputs));
        let (left, room) = room.split_at_mut(left_len(rows) + CHUNK);
        let (kept, room) = room.split_at_mut(rows * outputs);
        let (lines, staged) = room.split_at_mut(WIDTH * ROW);
        // SAFETY: sums have the size of words, words consist of whole pieces, and any bits are a value of theirs.
        let (kept, staged) = unsafe { (kept.align_to_mut::<W::Sum>().1, staged.align_to_mut::<T::Piece>().1) };
        // At least one block, because the sums over no points at all are 0 and must be written.
        for i in blocks.start..blocks.end.max(blocks.start + 1) {
            let span = if blocks.is_empty() { 0..0 } else { i * cut.points..((i + 1) * cut.points).min(points) };
            let depth = span.len().div_ceil(W::TERMS);
            if !span.is_empty() {
                self.pack_rows::<W>(span.clone(), depth, &mut staged[..cut.staged], left);
                self.pack_grad::<W>(span, depth, lines, right);
            }
            let (left, right) = (left.as_ptr(), right.as_ptr());
            let both = Blocks { left, turned: false, right, panel: depth * WIDTH, depth, rows, columns: outputs };
            let mut sums = Kept::new(kept, outputs);
            // SAFETY: both blocks were just packed.
            unsafe {
                multiply(&both, |row, column, tile: &mut Sums<W::Sum>| {
                    let sizes = [ROWS.min(rows - row), WIDTH.min(outputs - column)];
                    sums.join(tile, [row, column], sizes, i == blocks.start, false);
                });
            }
        }
        // In the weight, the rows of an output lie side by side. So the sums are transposed, a few outputs at a time.
        for output in (0..outputs).step_by(WIDTH) {
            let few = WIDTH.min(outputs - output);
            let mut turned = [[W::Sum::default(); MOST_ROWS]; WIDTH];
            for row in 0..rows {
                let from = &kept[row * outputs + output..][..few];
                for o in 0..few {
                    turned[o][row] = from[o];
                }
            }
            for (o, sums) in turned[..few].iter().enumerate() {
                take(self.outputs.start + output + o, self.rows.start, &sums[..rows]);
            }
        }
    }

    /// Packs the elements that the rows see from points `span`, as a left block.
    fn pack_rows<W: Word>(&self, span: Range<usize>, depth: usize, staged: &mut [T::Piece], left: &mut [W])
    where
        T: Packs<W> + Cells<<T as Packs<W>>::Piece>,
    {
        let (plan, places) = (self.pass.plan, self.pass.plan.places());
        let layout = Stage::new(plan, span.start, span.end);
        let cells = self.rows.start / places..self.rows.end.div_ceil(places);
        let (row, len) = (ROW * W::TERMS, span.len());
        // SAFETY: words consist of whole pieces, in the order of their addresses.
        let left = unsafe { left.align_to_mut::<T::Piece>().1 };
        let fits = layout.channels_in(staged.len()) >= cells.len();
        let mut offsets = ArrayVec::<usize, { 1 << 10 }>::new();
        if fits {
            let staging = Staging {
                plan,
                stage: layout,
                source: self.pass.x,
                group: self.group,
                first: cells.start,
                channels: cells.len(),
            };
            stage::<T::Piece, T>(&staging, &mut staged[..layout.len(cells.len())]);
            let within: ArrayVec<usize, { 1 << 10 }> =
                (0..places.min(1 << 10)).map(|t| layout.offset(plan, t)).collect();
            offsets.extend(self.rows.clone().map(|r| {
                let t = r % places;
                (r / places - cells.start) * layout.channel()
                    + within.get(t).copied().unwrap_or_else(|| layout.offset(plan, t))
            }));
            let runs = layout.runs::<POINTS>(plan, span.start, span.end, cells.len());
            rows_of_runs(&offsets, &runs, staged, left, row);
        }
        for (i, r) in self.rows.clone().enumerate() {
            let to = &mut left[i * row..][..depth * W::TERMS];
            if !fits {
                for (to, point) in to.iter_mut().zip(span.clone()) {
                    *to = cell_at(plan, self.pass.x, self.group, r / places, r % places, point);
                }
            }
            to[len..].fill(T::Piece::default());
        }
    }

    /// Packs the gradient at points `span`, as a right block.
    fn pack_grad<W: Word>(&self, span: Range<usize>, depth: usize, lines: &mut [W], right: &mut [W])
    where
        T: Packs<W>,
    {
        let (plan, points) = (self.pass.plan, self.pass.plan.points());
        for (panel, first) in self.outputs.clone().step_by(WIDTH).enumerate() {
            let width = WIDTH.min(self.outputs.end - first);
            // SAFETY: words consist of whole pieces, in the order of their addresses.
            let pieces_of = unsafe { lines.align_to_mut::<T::Piece>().1 };
            for (j, line) in pieces_of.chunks_exact_mut(ROW * W::TERMS).take(width).enumerate() {
                let mut point = span.start;
                while point < span.end {
                    let (image, at) = (point / points, point % points);
                    let len = (points - at).min(span.end - point);
                    let plane = (image * plan.groups + self.group) * plan.outputs + first + j;
                    pieces::<W, T>(
                        &self.pass.grad[plane * points + at..][..len],
                        &mut line[point - span.start..][..len],
                    );
                    point += len;
                }
                line[span.len()..depth * W::TERMS].fill(T::Piece::default());
            }
            turn(lines, width, &mut right[panel * depth * WIDTH..][..depth * WIDTH]);
        }
    }
}

simd! {
    fn round<T: Float>(sums: &[T::Compute], to: &mut [T]) = round_body;
    fn rows_of_runs<C: crate::parallel::Plain>(offsets: &[usize], runs: &[Run], staged: &[C], left: &mut [C], row: usize) = rows_of_runs_body;
}

#[inline(always)]
fn round_body<S: Isa, T: Float>(sums: &[T::Compute], to: &mut [T]) {
    for i in 0..to.len() {
        to[i] = T::put(sums[i]);
    }
}

#[inline(always)]
fn rows_of_runs_body<S: Isa, C: crate::parallel::Plain>(
    offsets: &[usize],
    runs: &[Run],
    staged: &[C],
    left: &mut [C],
    row: usize,
) {
    assert!(left.len() >= offsets.len() * row + CHUNK);
    for (i, &offset) in offsets.iter().enumerate() {
        // SAFETY: the layout that gave offsets and runs has room for all of them and a chunk (`Stage::len`); a row's runs are at most `POINTS`
        // points, and a chunk more ends before the next row's first chunk does (asserted for the last).
        unsafe { copy_runs(runs, staged.as_ptr().add(offset), left.as_mut_ptr().add(i * row)) };
    }
}
