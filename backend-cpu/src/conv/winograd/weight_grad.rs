//! Weight gradient, as sixteen products. Their rows are channels, their columns are outputs, and the sum goes over the blocks of all images. Tasks
//! are as in the plain form (`conv/weight_grad.rs`): some channels and outputs. If those are few, the blocks are cut into parts too, whose sums are
//! added in order at the end.

use std::ops::Range;

use super::grid::{ROOM, STAGED, TASKS, is_worth_it, staged_len};
use super::transform::{AREA, Patches, SPILL, gradients, patches, window_gradients};
use crate::conv::plan::Plan;
use crate::conv::stage::{CHUNK, Stage, Staging, copy_runs, stage};
use crate::panels::pack::turn;
use crate::panels::{ROW, Strided, WIDTH, strided_product};
use crate::parallel::SHARED_BYTES;
use crate::view::{Context, SharedMut};

/// Maximum number of channels, and of outputs, of a task.
const MOST: usize = 64;
/// Number of blocks that are packed at a time. Four times as many elements, with gaps, are a row of [`ROW`].
const POINTS: usize = 64;
/// Number of elements from one row of transformed patches to the next. It is not a power of two, so that rows do not compete for one set of the
/// cache.
const PATCH_ROW: usize = POINTS + SPILL;
/// Maximum number of parts with their own sums.
const PARTS: usize = 16;

/// Weight gradient that is computed by Winograd's method.
pub(in crate::conv) struct WeightGrad<'a> {
    plan: &'a Plan,
    blocks: Plan,
    points_of_blocks: Plan,
    channels: usize,
    outputs: usize,
    parts: usize,
}

impl<'a> WeightGrad<'a> {
    /// Returns `None` if the plan does not suit the method, its data does not fit, or the transforms would not pay. The plan is the convolution's.
    pub(in crate::conv) fn for_plan(plan: &'a Plan) -> Option<Self> {
        let (blocks, points_of_blocks) = (plan.blocks().filter(|_| is_worth_it(plan))?, plan.points_of_blocks());
        let even = |all: usize, unit: usize| all.div_ceil(all.div_ceil(MOST)).next_multiple_of(unit).min(MOST);
        let (channels, outputs) = (even(plan.channels, 4), even(plan.outputs, WIDTH));
        let packed = (blocks.images * blocks.points()).div_ceil(POINTS);
        let tasks = plan.groups * plan.channels.div_ceil(channels) * plan.outputs.div_ceil(outputs);
        let fit = SHARED_BYTES / 4 / (plan.groups * plan.outputs * plan.channels * 9);
        let parts = TASKS.div_ceil(tasks).min(PARTS).min(packed).min(fit).max(1);
        let fits = packed > 0 && staged_len(&blocks, POINTS) + CHUNK <= STAGED;
        fits.then_some(Self { plan, blocks, points_of_blocks, channels, outputs, parts })
    }

    /// Computes the gradient `out[o, c, y, x]`.
    pub(in crate::conv) fn run(&self, ctx: &Context<'_>, x: &[f32], grad: &[f32], out: &mut [f32]) {
        let (plan, len) = (self.plan, out.len());
        let points = self.blocks.images * self.blocks.points();
        let mut shared = ctx.threads.shared_room();
        let sums = shared.slice_mut::<f32>(if self.parts > 1 { self.parts * len } else { 0 });
        let (partial, whole) = (SharedMut::new(sums), SharedMut::new(out));
        let [channel_blocks, output_blocks] =
            [plan.channels.div_ceil(self.channels), plan.outputs.div_ceil(self.outputs)];
        let per_part = points.div_ceil(POINTS).div_ceil(self.parts) * POINTS;
        let work = self.channels * self.outputs * per_part;
        ctx.for_pieces(plan.groups * channel_blocks * output_blocks * self.parts, 1, work, |i, _| {
            let (part, i) = (i % self.parts, i / self.parts);
            let (first_output, i) = (i % output_blocks * self.outputs, i / output_blocks);
            let (first_channel, group) = (i % channel_blocks * self.channels, i / channel_blocks);
            let task = Task {
                of: self,
                group,
                channels: first_channel..(first_channel + self.channels).min(plan.channels),
                outputs: first_output..(first_output + self.outputs).min(plan.outputs),
            };
            let to = if self.parts > 1 { partial } else { whole };
            let first = if self.parts > 1 { part * len } else { 0 };
            let points = (part * per_part).min(points)..((part + 1) * per_part).min(points);
            task.run(ctx, points, x, grad, |output, channel| {
                let at = (group * plan.outputs + output) * plan.channels + channel;
                // SAFETY: this channel of this output is this task's alone, in this part's sums or in the output.
                unsafe { to.part(first + at * 9, 9) }
            });
        });
        if self.parts > 1 {
            let sums = &*sums;
            ctx.for_pieces(len, 4096, self.parts, |start, end| {
                // SAFETY: a task for each piece.
                let out = unsafe { whole.part(start, end - start) };
                out.copy_from_slice(&sums[start..end]);
                for part in 1..self.parts {
                    for (to, sum) in out.iter_mut().zip(&sums[part * len + start..]) {
                        *to += sum;
                    }
                }
            });
        }
    }
}

/// Task: some channels and outputs of a group.
struct Task<'a> {
    of: &'a WeightGrad<'a>,
    group: usize,
    channels: Range<usize>,
    outputs: Range<usize>,
}

/// Parts of a thread's scratch: transformed patches and gradients, sums, and buffers for making them.
struct Room<'a> {
    staged: &'a mut [f32],
    left: &'a mut [f32],
    right: &'a mut [f32],
    sums: &'a mut [f32],
    lines: &'a mut [f32],
    turned: &'a mut [f32],
}

impl Task<'_> {
    /// Sums over the blocks `points`. Writes the window of sums of each output and channel to `to(output, channel)`.
    fn run<'t>(
        &self,
        ctx: &Context<'_>,
        points: Range<usize>,
        x: &[f32],
        grad: &[f32],
        to: impl Fn(usize, usize) -> &'t mut [f32],
    ) {
        let mut scratch = ctx.scratch();
        let mut room = self.room(scratch.slice_mut::<f32>(ROOM));
        let (rows, columns) = (self.channels.len().next_multiple_of(4), self.outputs.len().next_multiple_of(WIDTH));
        let (left_apart, right_apart) = (rows * PATCH_ROW, columns * POINTS);
        if points.is_empty() {
            room.sums.fill(0.0);
        }
        for start in points.clone().step_by(POINTS) {
            let span = start..(start + POINTS).min(points.end);
            let depth = span.len();
            self.pack_patches(span.clone(), x, &mut room, left_apart);
            self.pack_grad(span, grad, &mut room, right_apart);
            for i in 0..AREA {
                for column in (0..columns).step_by(WIDTH) {
                    let job = Strided {
                        sizes: [rows, WIDTH, depth],
                        left: room.left[i * left_apart..].as_ptr(),
                        row: PATCH_ROW,
                        step: 1,
                        right: room.right[i * right_apart + column * POINTS..].as_ptr(),
                        width: WIDTH,
                        to: room.sums[i * rows * columns + column..].as_mut_ptr(),
                        to_row: columns,
                        add: start != points.start,
                    };
                    // SAFETY: both were just packed, and rows beyond the last channel have room in all three.
                    unsafe { strided_product(&job) };
                }
            }
        }
        let mut windows = [[0.0; WIDTH]; 9];
        for channel in 0..self.channels.len() {
            for column in (0..self.outputs.len()).step_by(WIDTH) {
                window_gradients(&room.sums[channel * columns + column..], rows * columns, &mut windows);
                for o in 0..WIDTH.min(self.outputs.len() - column) {
                    let to = to(self.outputs.start + column + o, self.channels.start + channel);
                    for (to, window) in to.iter_mut().zip(&windows) {
                        *to = window[o];
                    }
                }
            }
        }
    }

    fn room<'r>(&self, room: &'r mut [f32]) -> Room<'r> {
        let (staged, room) = room.split_at_mut(STAGED);
        let (left, room) = room.split_at_mut(AREA * MOST * PATCH_ROW + SPILL);
        let (right, room) = room.split_at_mut(AREA * MOST * POINTS);
        let (sums, room) = room.split_at_mut(AREA * MOST * MOST);
        let (lines, room) = room.split_at_mut(WIDTH * ROW + CHUNK);
        let turned = &mut room[..4 * POINTS * WIDTH];
        Room { staged, left, right, sums, lines, turned }
    }

    /// Packs the transformed patches of these blocks. Each of the sixteen operands has a row for each channel.
    fn pack_patches(&self, span: Range<usize>, x: &[f32], room: &mut Room<'_>, apart: usize) {
        let plan = &self.of.blocks;
        let layout = Stage::new(plan, span.start, span.end);
        let offsets: [usize; AREA] = std::array::from_fn(|t| layout.offset(plan, t));
        let most = layout.channels_in(STAGED);
        for first in self.channels.clone().step_by(most) {
            let channels = most.min(self.channels.end - first);
            let staging = Staging { plan, stage: layout, source: x, group: self.group, first, channels };
            stage::<f32, f32>(&staging, &mut room.staged[..layout.len(channels)]);
            let runs = layout.runs::<POINTS>(plan, span.start, span.end, channels);
            let (channel, row) = (layout.channel(), PATCH_ROW);
            let p = Patches { staged: room.staged, offsets, runs: &runs, channels, channel, row, apart };
            patches(&p, &mut room.left[(first - self.channels.start) * PATCH_ROW..]);
        }
    }

    /// Packs the transformed gradient of these blocks. Each of the sixteen operands has panels in which outputs lie side by side.
    fn pack_grad(&self, span: Range<usize>, grad: &[f32], room: &mut Room<'_>, apart: usize) {
        let plan = &self.of.points_of_blocks;
        let layout = Stage::new(plan, span.start, span.end);
        let offsets: [usize; 4] = std::array::from_fn(|t| layout.offset(plan, t));
        let most = layout.channels_in(STAGED).min(WIDTH);
        let depth = span.len();
        for (panel, start) in self.outputs.clone().step_by(WIDTH).enumerate() {
            let width = WIDTH.min(self.outputs.end - start);
            for first in (0..width).step_by(most) {
                let channels = most.min(width - first);
                let staging =
                    Staging { plan, stage: layout, source: grad, group: self.group, first: start + first, channels };
                stage::<f32, f32>(&staging, &mut room.staged[..layout.len(channels)]);
                let runs = layout.runs::<POINTS>(plan, span.start, span.end, channels);
                for channel in 0..channels {
                    for (i, offset) in offsets.iter().enumerate() {
                        let from = room.staged[channel * layout.channel() + offset..].as_ptr();
                        let to = room.lines[(first + channel) * ROW + i * (ROW / 4)..].as_mut_ptr();
                        // SAFETY: the layout has room for all runs and a chunk (`Stage::len`); `lines` has a row of four times `ROW / 4` elements
                        // for each output, and a chunk more.
                        unsafe { copy_runs(&runs, from, to) };
                    }
                }
            }
            let len = depth * WIDTH;
            for i in 0..4 {
                turn(&room.lines[i * (ROW / 4)..], width, &mut room.turned[i * len..][..len]);
            }
            gradients(&room.turned[..4 * len], len, &mut room.right[panel * WIDTH * POINTS..], apart);
        }
    }
}
