//! Convolution and input gradient, for some of the outputs at a time. Their transformed weight is packed into the buffer that all threads share.
//! Tasks are blocks of points; their transformed patches are the right operands of sixteen products.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::transform::{AREA, Line, Patches, SPILL, Written, patches, windows, write};
use crate::conv::plan::Plan;
use crate::conv::stage::{CHUNK, Stage, Staging, stage};
use crate::panels::{Job, Left, ROWS, Sums, WIDTH, Word};
use crate::parallel::{SCRATCH_BYTES, SHARED_BYTES};
use crate::view::{Context, SharedMut};

/// Minimum number of channels and of outputs, and minimum width of planes. Below, the transforms take longer than the multiplications that they save.
const LEAST: usize = 24;
const NARROWEST: usize = 14;
/// Number of elements of a thread's scratch.
pub(super) const ROOM: usize = SCRATCH_BYTES / 4;
/// Number of elements of the scratch for staged channels.
pub(super) const STAGED: usize = 48 << 10;
/// Number of elements of the scratch for transformed patches. Together with the staged channels they stay in the second-level cache.
const PATCHES: usize = 192 << 10;
/// Number of unused elements between the patches' elements of different products.
const APART: usize = 16;
/// Intended number of tasks: several for each of a few threads.
pub(super) const TASKS: usize = 16;

/// Plan that is computed by Winograd's method.
pub(in crate::conv) struct Winograd<'a> {
    plan: &'a Plan,
    blocks: Plan,
    /// Blocks of a task.
    points: usize,
    /// Outputs whose weights are packed together.
    outputs: usize,
}

/// Returns the number of elements of a panel with the patches of `WIDTH` blocks.
fn panel_len(channels: usize) -> usize {
    AREA * (channels * WIDTH + APART)
}

/// Returns the number of elements of the weights of `ROWS` outputs.
fn weights_len(channels: usize) -> usize {
    AREA * channels * ROWS
}

/// True if the saved multiplications take longer than the transforms.
pub(super) fn is_worth_it(plan: &Plan) -> bool {
    plan.channels >= LEAST && plan.outputs >= LEAST && plan.grid[1] >= NARROWEST
}

/// Returns the maximum number of cells for staging one channel of `points` blocks.
pub(super) fn staged_len(blocks: &Plan, points: usize) -> usize {
    let [down, across] = blocks.grid;
    let rows = down.min(points.div_ceil(across) + 1) + 1;
    (points.div_ceil(down * across) + 1) * 4 * rows * (across + 1)
}

impl<'a> Winograd<'a> {
    /// Returns `None` if the plan does not suit the method, its data does not fit, or the transforms would not pay.
    pub(in crate::conv) fn for_plan(plan: &'a Plan) -> Option<Self> {
        let blocks = plan.blocks().filter(|_| is_worth_it(plan))?;
        let all = blocks.images * blocks.points();
        let panels = (PATCHES / panel_len(plan.channels)).max(1);
        let points = all.div_ceil(TASKS).next_multiple_of(WIDTH).min(panels * WIDTH);
        let most = SHARED_BYTES / 4 / weights_len(plan.channels) * ROWS;
        let fits = panels * panel_len(plan.channels) + SPILL + STAGED <= ROOM
            && most > 0
            && all > 0
            && staged_len(&blocks, points) + CHUNK <= STAGED;
        let outputs = || plan.outputs.div_ceil(plan.outputs.div_ceil(most)).next_multiple_of(ROWS).min(most);
        fits.then(|| Self { plan, blocks, points, outputs: outputs() })
    }

    /// Computes `out` at the grid's points, with a bias for each output.
    pub(in crate::conv) fn run(
        &self,
        ctx: &Context<'_>,
        source: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: SharedMut<f32>,
    ) {
        let plan = self.plan;
        let mut shared = ctx.threads.shared_room();
        let shared = shared.slice_mut::<f32>(self.outputs / ROWS * weights_len(plan.channels));
        let all = self.blocks.images * self.blocks.points();
        for group in 0..plan.groups {
            for first in (0..plan.outputs).step_by(self.outputs) {
                let outputs = first..(first + self.outputs).min(plan.outputs);
                self.pack_weights(ctx, weight, group, &outputs, shared);
                let work = outputs.len() * self.points * plan.channels;
                ctx.for_pieces(all.div_ceil(self.points), 1, work, |i, _| {
                    let points = i * self.points..((i + 1) * self.points).min(all);
                    let task = Task { of: self, group, outputs: outputs.clone(), points, bias, out };
                    task.run(ctx, source, shared);
                });
            }
        }
    }

    /// Packs the transformed weights of some outputs, `ROWS` at a time.
    fn pack_weights(&self, ctx: &Context<'_>, weight: &[f32], group: usize, outputs: &Range<usize>, to: &mut [f32]) {
        let plan = self.plan;
        let [per_output, per_channel, per_row, per_group] = plan.weight;
        let place = |t: usize| plan.taps[0].in_order(t / 3) * per_row + plan.taps[1].in_order(t % 3);
        let places: [usize; 9] = std::array::from_fn(place);
        let (len, channels) = (weights_len(plan.channels), plan.channels);
        let to = SharedMut::new(to);
        ctx.for_pieces(outputs.len().div_ceil(ROWS), 1, len * 2, |panel, _| {
            // SAFETY: a task for each panel.
            let to = unsafe { to.part(panel * len, len) };
            let first = outputs.start + panel * ROWS;
            let rows = ROWS.min(outputs.end - first);
            let (mut g, mut done) = ([[0.0; ROWS]; 9], [[0.0; ROWS]; AREA]);
            for channel in 0..channels {
                let from = &weight[group * per_group + channel * per_channel..];
                for row in 0..rows {
                    let from = &from[(first + row) * per_output..];
                    for (g, &place) in g.iter_mut().zip(&places) {
                        g[row] = from[place];
                    }
                }
                windows(&g, &mut done);
                for (i, done) in done.iter().enumerate() {
                    to[(i * channels + channel) * ROWS..][..ROWS].copy_from_slice(done);
                }
            }
        });
    }
}

/// Task: some blocks and outputs of a group.
struct Task<'a> {
    of: &'a Winograd<'a>,
    group: usize,
    outputs: Range<usize>,
    points: Range<usize>,
    bias: Option<&'a [f32]>,
    out: SharedMut<f32>,
}

impl Task<'_> {
    fn run(&self, ctx: &Context<'_>, source: &[f32], weights: &[f32]) {
        let channels = self.of.plan.channels;
        let mut scratch = ctx.scratch();
        let (staged, right) = scratch.slice_mut::<f32>(ROOM).split_at_mut(STAGED);
        self.pack_patches(source, staged, right);
        let mut sums = [const { Sums::<f32>([[0.0; WIDTH]; ROWS]) }; AREA];
        for (panel, first) in self.points.clone().step_by(WIDTH).enumerate() {
            let columns = WIDTH.min(self.points.end - first);
            let right = &right[panel * panel_len(channels)..][..panel_len(channels)];
            let lines = self.lines(first, columns);
            for row in (0..self.outputs.len()).step_by(ROWS) {
                let rows = ROWS.min(self.outputs.len() - row);
                let left = &weights[row / ROWS * weights_len(channels)..][..weights_len(channels)];
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = Left::Turned(left[i * channels * ROWS..].as_ptr(), ROWS);
                    let right = right[i * (channels * WIDTH + APART)..].as_ptr();
                    // SAFETY: both blocks were packed, of `channels` terms, `ROWS` rows and `WIDTH` columns.
                    unsafe { f32::tile(&Job { left, right, depth: channels, rows, columns }, sums) };
                }
                self.write(&sums, self.outputs.start + row, rows, &lines);
            }
        }
    }

    /// Packs the transformed patches of all points and channels.
    fn pack_patches(&self, source: &[f32], staged: &mut [f32], right: &mut [f32]) {
        let (plan, channels) = (&self.of.blocks, self.of.plan.channels);
        let layout = Stage::new(plan, self.points.start, self.points.end);
        let offsets: [usize; AREA] = std::array::from_fn(|t| layout.offset(plan, t));
        let most = layout.channels_in(staged.len()).min(channels);
        for first in (0..channels).step_by(most) {
            let few = most.min(channels - first);
            let staging = Staging { plan, stage: layout, source, group: self.group, first, channels: few };
            stage::<f32, f32>(&staging, &mut staged[..layout.len(few)]);
            for (panel, start) in self.points.clone().step_by(WIDTH).enumerate() {
                let runs = layout.runs::<WIDTH>(plan, start, (start + WIDTH).min(self.points.end), few);
                let right = &mut right[panel * panel_len(channels) + first * WIDTH..];
                let (channel, apart) = (layout.channel(), channels * WIDTH + APART);
                let p = Patches { staged, offsets, runs: &runs, channels: few, channel, row: WIDTH, apart };
                patches(&p, right);
            }
        }
    }

    /// Returns the places of a panel's blocks in the target.
    fn lines(&self, first: usize, columns: usize) -> ArrayVec<Line, WIDTH> {
        let (plan, blocks) = (self.of.plan, &self.of.blocks);
        let across = blocks.grid[1];
        let mut lines = ArrayVec::new();
        let mut point = first;
        while point < first + columns {
            let (image, at) = (point / blocks.points(), point % blocks.points());
            let (y, x) = (at / across, at % across);
            let len = (across - x).min(first + columns - point);
            let plane = (image * plan.groups + self.group) * plan.outputs * plan.target[0] * plan.target[1];
            lines.push(Line {
                column: point - first,
                at: plane + 2 * y * plan.target[1] + 2 * x,
                points: (2 * len).min(plan.target[1] - 2 * x),
                rows: 2.min(plan.target[0] - 2 * y),
            });
            point += len;
        }
        lines
    }

    fn write(&self, sums: &[Sums<f32>; AREA], output: usize, rows: usize, lines: &[Line]) {
        let plan = self.of.plan;
        let pixels = plan.target[0] * plan.target[1];
        let bias = self.bias.map(|bias| &bias[self.group * plan.outputs + output..][..rows]);
        let to = self.out.get().wrapping_add(output * pixels);
        // The points of these outputs are this task's alone.
        write(&Written { to, pixels, across: plan.target[1], rows, bias, lines }, sums);
    }
}
