//! Convolution and input gradient, for some of the outputs at a time. Their weight is packed once, into the buffer that all threads share. Tasks are
//! tiles of points; their patches go from the staged source straight into panels.

use super::plan::Plan;
use super::stage::{Cells, Run, Stage, Staging, cell_at, copy_runs, stage};
use crate::element::Float;
use crate::panels::pack::{Packs, left_len, right_len};
use crate::panels::{Blocks, DEPTH, Kept, ROW, ROWS, Sums, WIDTH, Word, multiply};
use crate::parallel::SCRATCH_BYTES;
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Runs a plan: computes `out` at the grid's points, with a bias for each output.
pub(super) fn run<W: Word, T: Packs<W> + Cells<W>>(
    ctx: &Context<'_>,
    plan: &Plan,
    source: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    out: SharedMut<T>,
) {
    let points = plan.images * plan.points();
    if points == 0 || plan.outputs == 0 {
        return;
    }
    let pass = Pass { plan, source, weight, bias, out, cut: Cut::new::<W>(plan, points) };
    let mut shared = ctx.threads.shared_room();
    let shared = shared.slice_mut::<W>(shared_words::<W>());
    for group in 0..plan.groups {
        for first in (0..plan.outputs).step_by(pass.cut.outputs) {
            let outputs = first..(first + pass.cut.outputs).min(plan.outputs);
            pass.some(ctx, group, outputs, points, shared);
        }
    }
}

fn shared_words<W>() -> usize {
    crate::parallel::SHARED_BYTES / size_of::<W>()
}

/// Division of the work into tasks and blocks, which depends on sizes alone.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Words that one output sums over: cells of the source, times places of the window.
    words: usize,
    /// Words of a block.
    depth: usize,
    /// Outputs whose weights are packed together.
    outputs: usize,
    /// True if the weights are packed once, for all tasks; otherwise each task packs them, block by block.
    once: bool,
    /// Points of a task.
    points: usize,
    /// Words of a thread's scratch for the source.
    staged: usize,
}

impl Cut {
    fn new<W: Word>(plan: &Plan, points: usize) -> Self {
        let room = SCRATCH_BYTES / size_of::<W>();
        let words = plan.channels.div_ceil(W::TERMS) * plan.places();
        let depth = if (1..=DEPTH).contains(&plan.places()) { DEPTH / plan.places() * plan.places() } else { DEPTH };
        let widest = room / 4 / DEPTH / WIDTH * WIDTH;
        // About 16 tasks: several for each of a few threads.
        let points = widest.min(points.div_ceil(16).next_multiple_of(WIDTH));
        let most = room / 4 / widest / ROWS * ROWS;
        let packed = shared_words::<W>() / (words.div_ceil(depth).max(1) * ROW) / ROWS * ROWS;
        let own = room / 16 / ROW / ROWS * ROWS;
        let once = packed >= ROWS;
        let outputs = even(plan.outputs, most.min(if once { packed } else { own }));
        let staged = room - right_len(widest) - most * widest - left_len(own) - 2 * WIDTH;
        Self { words, depth, outputs, once, points, staged }
    }
}

/// Returns how many of `all` to take at a time, at most `most`, so that each time has about as many.
fn even(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most)).next_multiple_of(ROWS).min(most)
}

struct Pass<'a, T> {
    plan: &'a Plan,
    source: &'a [T],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    out: SharedMut<T>,
    cut: Cut,
}

impl<T: Float> Pass<'_, T> {
    /// Computes some outputs of one group, at all points.
    fn some<W: Word>(
        &self,
        ctx: &Context<'_>,
        group: usize,
        outputs: std::ops::Range<usize>,
        points: usize,
        shared: &mut [W],
    ) where
        T: Packs<W> + Cells<W>,
    {
        let cut = &self.cut;
        let blocks = cut.words.div_ceil(cut.depth).max(1);
        let block = left_len(outputs.len());
        if cut.once {
            let packed = SharedMut::new(&mut shared[..blocks * block]);
            ctx.for_pieces(blocks, 1, outputs.len() * cut.depth, |i, _| {
                // SAFETY: a task for each block.
                self.pack_weights(group, outputs.clone(), i, unsafe { packed.part(i * block, block) });
            });
        }
        let shared = &*shared;
        let work = outputs.len() * cut.points * cut.words.max(1) / 4;
        ctx.for_pieces(points.div_ceil(cut.points), 1, work, |i, _| {
            let tile = i * cut.points..((i + 1) * cut.points).min(points);
            self.tile(ctx, group, outputs.clone(), tile, shared);
        });
    }

    /// Computes some outputs of one group, at the points of one task. `shared` holds the weights if they are packed once.
    fn tile<W: Word>(
        &self,
        ctx: &Context<'_>,
        group: usize,
        outputs: std::ops::Range<usize>,
        tile: std::ops::Range<usize>,
        shared: &[W],
    ) where
        T: Packs<W> + Cells<W>,
    {
        let cut = &self.cut;
        let mut scratch = ctx.scratch();
        let room = scratch.slice_mut::<W>(SCRATCH_BYTES / size_of::<W>());
        let (right, room) = room.split_at_mut(right_len(cut.points) + WIDTH);
        let (kept, room) = room.split_at_mut(outputs.len() * cut.points);
        let (staged, own) = room.split_at_mut(cut.staged);
        // SAFETY: sums have the size of words, and any bits are a value of theirs.
        let (_, sums, _) = unsafe { kept.align_to_mut::<W::Sum>() };
        let [rows, columns] = [outputs.len(), tile.len()];
        let mut kept = Kept::new(sums, columns);
        let layout = Stage::new(self.plan, tile.start, tile.end);
        let mut end = End { pass: self, group, outputs: outputs.clone(), tile: tile.clone(), runs: Runs::default() };
        let blocks = cut.words.div_ceil(cut.depth).max(1);
        for i in 0..blocks {
            let words = i * cut.depth..((i + 1) * cut.depth).min(cut.words);
            self.pack_patches::<W>(group, &layout, tile.clone(), words.clone(), staged, right);
            let left = if cut.once {
                shared[i * left_len(rows)..].as_ptr()
            } else {
                self.pack_weights(group, outputs.clone(), i, own);
                own.as_ptr()
            };
            let (depth, right) = (words.len(), right.as_ptr());
            let both = Blocks { left, turned: false, right, panel: depth * WIDTH, depth, rows, columns };
            // SAFETY: both were just packed, or once for all tasks; the points of these outputs are this task's alone.
            unsafe {
                multiply(&both, |row, column, tile| {
                    let sizes = [ROWS.min(rows - row), WIDTH.min(columns - column)];
                    if kept.join(tile, [row, column], sizes, i == 0, i + 1 == blocks) {
                        end.write(tile, [row, column], sizes);
                    }
                });
            }
        }
    }

    /// Packs block `i` of the weights of some outputs, as a left block.
    fn pack_weights<W: Word>(&self, group: usize, outputs: std::ops::Range<usize>, i: usize, to: &mut [W])
    where
        T: Packs<W> + Cells<W>,
    {
        let (plan, cut) = (self.plan, &self.cut);
        let [per_output, per_channel, per_row, per_group] = plan.weight;
        let words = i * cut.depth..((i + 1) * cut.depth).min(cut.words);
        let places = plan.places();
        let mut within = [0; DEPTH];
        for (t, within) in within.iter_mut().enumerate().take(places) {
            let [y, x] = plan.place(t);
            *within = y * per_row + x;
        }
        let side_by_side = <T as Cells<W>>::CHANNELS == 1
            && per_channel == places
            && (0..places.min(DEPTH)).all(|t| within[t] == t)
            && places <= DEPTH;
        for (row, output) in outputs.enumerate() {
            let from = &self.weight[group * per_group + output * per_output..];
            let to = &mut to[row * ROW..][..words.len()];
            if side_by_side {
                for (to, &x) in to.iter_mut().zip(&from[words.start..]) {
                    *to = T::cell(x, x);
                }
            } else if places <= DEPTH {
                // Each block consists of whole cells.
                let cells = words.start / places.max(1);
                for (i, to) in to.chunks_mut(places.max(1)).enumerate() {
                    self.pack_cell(from, cells + i, per_channel, &within[..to.len()], to);
                }
            } else {
                for (word, to) in words.clone().zip(to) {
                    let [y, x] = plan.place(word % places);
                    self.pack_cell(from, word / places, per_channel, &[y * per_row + x], std::slice::from_mut(to));
                }
            }
        }
    }

    /// Packs cell `cell` of one output's weights, at the positions `within` the window.
    #[inline]
    fn pack_cell<W: Word>(&self, from: &[T], cell: usize, per_channel: usize, within: &[usize], to: &mut [W])
    where
        T: Packs<W> + Cells<W>,
    {
        let zero = T::put(<T::Compute as Default>::default());
        let channel = cell * <T as Cells<W>>::CHANNELS;
        let first = &from[channel * per_channel..];
        if <T as Cells<W>>::CHANNELS == 2 && channel + 1 < self.plan.channels {
            let second = &first[per_channel..];
            for (to, &at) in to.iter_mut().zip(within) {
                *to = T::cell(first[at], second[at]);
            }
        } else {
            for (to, &at) in to.iter_mut().zip(within) {
                *to = T::cell(first[at], zero);
            }
        }
    }

    /// Packs words `words` of the patches of a task's points, as panels.
    fn pack_patches<W: Word>(
        &self,
        group: usize,
        layout: &Stage,
        tile: std::ops::Range<usize>,
        words: std::ops::Range<usize>,
        staged: &mut [W],
        right: &mut [W],
    ) where
        T: Packs<W> + Cells<W>,
    {
        let (plan, places) = (self.plan, self.plan.places().max(1));
        let panel = words.len() * WIDTH;
        let cells = words.start / places..words.end.div_ceil(places);
        if layout.channels_in(staged.len()) < cells.len() {
            return self.pack_one_by_one(group, tile, words, right);
        }
        let staging =
            Staging { plan, stage: *layout, source: self.source, group, first: cells.start, channels: cells.len() };
        stage::<W, T>(&staging, &mut staged[..layout.len(cells.len())]);
        let mut offsets = [0; DEPTH];
        let channel = layout.channel();
        for (i, word) in words.clone().enumerate() {
            // The places of a cell lie one channel after those of the cell before.
            offsets[i] = match i.checked_sub(places) {
                Some(earlier) => offsets[earlier] + channel,
                None => (word / places - cells.start) * channel + layout.offset(plan, word % places),
            };
        }
        for (i, start) in tile.clone().step_by(WIDTH).enumerate() {
            let runs = layout.runs::<WIDTH>(plan, start, (start + WIDTH).min(tile.end), cells.len());
            panel_of_runs(&offsets[..words.len()], &runs, staged, &mut right[i * panel..][..panel + WIDTH]);
        }
    }

    fn pack_one_by_one<W: Word>(
        &self,
        group: usize,
        tile: std::ops::Range<usize>,
        words: std::ops::Range<usize>,
        right: &mut [W],
    ) where
        T: Packs<W> + Cells<W>,
    {
        let places = self.plan.places().max(1);
        for (i, point) in tile.enumerate() {
            for (p, word) in words.clone().enumerate() {
                right[(i / WIDTH * words.len() + p) * WIDTH + i % WIDTH] =
                    cell_at(self.plan, self.source, group, word / places, word % places, point);
            }
        }
    }
}

simd! {
    fn panel_of_runs<W: Word>(offsets: &[usize], runs: &[Run], staged: &[W], to: &mut [W]) = panel_of_runs_body;
}

/// Writes a panel: for each word, a copy of the runs, `offset` elements further on. `to` must have room for one row more than the panel.
#[inline(always)]
fn panel_of_runs_body<S: Isa, W: Word>(offsets: &[usize], runs: &[Run], staged: &[W], to: &mut [W]) {
    let (from, to_ptr) = (staged.as_ptr(), to.as_mut_ptr());
    assert!(to.len() >= (offsets.len() + 1) * WIDTH);
    for (p, &offset) in offsets.iter().enumerate() {
        // SAFETY: the layout that gave offsets and runs has room for all of them and a chunk (`Stage::len`); so has `to` (asserted): a run of at most
        // `WIDTH` columns begins in row p.
        unsafe { copy_runs(runs, from.add(offset), to_ptr.add(p * WIDTH)) };
    }
}

/// Points of a panel that lie side by side in the output.
#[derive(Default)]
struct Runs {
    /// First column of the panel; `None` at first.
    column: Option<usize>,
    runs: arrayvec::ArrayVec<[usize; 3], WIDTH>,
}

/// Last step for the sums of a task: adds the bias, rounds, and writes to the target.
struct End<'a, T> {
    pass: &'a Pass<'a, T>,
    group: usize,
    outputs: std::ops::Range<usize>,
    tile: std::ops::Range<usize>,
    runs: Runs,
}

impl<T: Float> End<'_, T> {
    /// Writes the sums of a tile to the target.
    ///
    /// # Safety
    /// These points of these outputs are the caller's alone.
    unsafe fn write(&mut self, tile: &Sums<T::Compute>, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) {
        let plan = self.pass.plan;
        if self.runs.column != Some(column) {
            self.find_runs(column, columns);
        }
        let output = self.outputs.start + row;
        let pixels = plan.target[0] * plan.target[1];
        let bias = self.pass.bias.map(|bias| &bias[self.group * plan.outputs + output..][..rows]);
        let to = self.pass.out.get().wrapping_add(output * pixels);
        // SAFETY: passed on to the caller; the runs lie in the target.
        write_rows(&Written { to, pixels, every: plan.every[1], rows, bias }, tile, &self.runs.runs);
    }

    fn find_runs(&mut self, column: usize, columns: usize) {
        let plan = self.pass.plan;
        let across = plan.grid[1];
        let dense = plan.grid == plan.target && plan.every == [1, 1];
        self.runs.column = Some(column);
        self.runs.runs.clear();
        let (mut point, end) = (self.tile.start + column, self.tile.start + column + columns);
        while point < end {
            let (image, at) = (point / plan.points(), point % plan.points());
            // If the grid covers every point of the target, its rows follow each other.
            let len = if dense { plan.points() - at } else { across - at % across }.min(end - point);
            let plane = (image * plan.groups + self.group) * plan.outputs * plan.target[0] * plan.target[1];
            let y = plan.first[0] + at / across * plan.every[0];
            let to = plane + y * plan.target[1] + plan.first[1] + at % across * plan.every[1];
            self.runs.runs.push([point - self.tile.start - column, len, to]);
            point += len;
        }
    }
}

/// Destination of a tile: outputs lie `pixels` elements apart, and points of a run `every` elements.
struct Written<'a, T> {
    to: *mut T,
    pixels: usize,
    every: usize,
    rows: usize,
    bias: Option<&'a [T]>,
}

simd! {
    fn write_rows<T: Float>(w: &Written<'_, T>, tile: &Sums<T::Compute>, runs: &[[usize; 3]]) = write_rows_body;
}

#[inline(always)]
fn write_rows_body<S: Isa, T: Float>(w: &Written<'_, T>, tile: &Sums<T::Compute>, runs: &[[usize; 3]]) {
    for (i, sums) in tile.0[..w.rows].iter().enumerate() {
        let bias = w.bias.map_or(<T::Compute as Default>::default(), |bias| bias[i].get());
        for &[column, len, at] in runs {
            let to = w.to.wrapping_add(i * w.pixels + at);
            let sums = &sums[column..][..len];
            if w.every == 1 {
                // SAFETY: a run of the target, which `End::write`'s caller has for itself.
                let to = unsafe { std::slice::from_raw_parts_mut(to, len) };
                if len == WIDTH {
                    write_row(&mut to[..WIDTH], &sums[..WIDTH], bias);
                } else {
                    write_row(to, sums, bias);
                }
            } else {
                for (j, &sum) in sums.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { *to.add(j * w.every) = T::put(sum + bias) };
                }
            }
        }
    }
}

// Loops over indices, because some iterators are not inlined here.
#[inline(always)]
fn write_row<T: Float>(to: &mut [T], sums: &[T::Compute], bias: T::Compute) {
    for j in 0..to.len() {
        to[j] = T::put(sums[j] + bias);
    }
}
