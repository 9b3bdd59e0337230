//! Staging: copies the part of the source that a task needs, with its border of zeros. Each place of the window then sees a run of points as a run of
//! memory.
//!
//! Points are numbered through all images. A task's points come from one or several images; its rows of one image are a *part*. Each part has, for
//! each channel, one plane for each remainder of the step. In such a plane neighbouring points lie side by side, whatever the step is.

use arrayvec::ArrayVec;
use half::{bf16, f16};

use super::plan::Plan;
use crate::element::Element;
use crate::panels::{Pair, WIDTH};
use crate::parallel::Plain;
use crate::simd::{Isa, simd};

/// Number of cells that a copy of a run moves at a time. The next run overwrites the cells beyond the end of a run.
pub(super) const CHUNK: usize = WIDTH;

/// Elements that can be staged as cells of type `C`. A cell holds what lies at one position of the source: one element, in the compute type or as
/// it is, or the elements of two neighbouring channels.
pub(super) trait Cells<C: Plain + Default>: Element {
    /// Number of channels in a cell.
    const CHANNELS: usize = 1;
    /// Makes a cell. Ignores `second` if cells hold one channel.
    fn cell(first: Self, second: Self) -> C;
}

macro_rules! cells {
    ($($T:ty => $C:ty, |$x:ident| $cell:expr;)*) => {$(
        impl Cells<$C> for $T {
            #[inline(always)]
            fn cell($x: Self, _: Self) -> $C {
                $cell
            }
        }
    )*};
}
cells! {
    f32 => f32, |x| x;
    f64 => f64, |x| x;
    f16 => f32, |x| x.get();
    bf16 => f32, |x| x.get();
    bf16 => u16, |x| x.to_bits();
}

impl Cells<Pair> for bf16 {
    const CHANNELS: usize = 2;
    #[inline(always)]
    fn cell(first: Self, second: Self) -> Pair {
        Pair(u32::from(second.to_bits()) << 16 | u32::from(first.to_bits()))
    }
}

/// Points that lie side by side: `len` of them, from number `column` on (of the task, or of a panel). `at` is the index of the first in the staged
/// planes of the first channel, as a window's place without offset sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) column: usize,
    pub(super) len: usize,
    pub(super) at: usize,
}

/// Layout of the staged source of points `start..end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    start: usize,
    end: usize,
    /// Rows and columns of a plane, and planes of each channel: one for each remainder of the step that occurs.
    rows: usize,
    pitch: usize,
    remainders: [usize; 2],
    /// Smallest offsets of the window's places.
    least: [isize; 2],
    parts: usize,
}

impl Stage {
    /// Makes the layout for these points, at least one.
    pub(super) fn new(plan: &Plan, start: usize, end: usize) -> Self {
        let points = plan.points();
        let (first, last) = (start / points, (end - 1) / points);
        let [(low_y, span_y), (low_x, span_x)] = plan.taps.map(|taps| taps.reach());
        let [step_y, step_x] = plan.taps.map(|taps| taps.step);
        let mut stage = Self {
            start,
            end,
            rows: 0,
            pitch: plan.grid[1] + span_x / step_x,
            remainders: [step_y.min(span_y + 1), step_x.min(span_x + 1)],
            least: [low_y, low_x],
            parts: last - first + 1,
        };
        for part in 0..stage.parts {
            let [low, high] = stage.part(plan, part);
            stage.rows = stage.rows.max(high - low + span_y / step_y);
        }
        stage
    }

    /// Returns the first row of the grid in one part, and the row after its last.
    fn part(&self, plan: &Plan, part: usize) -> [usize; 2] {
        let (points, across) = (plan.points(), plan.grid[1]);
        let image = self.start / points + part;
        let low = self.start.max(image * points) - image * points;
        let high = self.end.min((image + 1) * points) - image * points;
        [low / across, high.div_ceil(across)]
    }

    /// Returns the number of cells of all planes of a channel of one part.
    pub(super) fn channel(&self) -> usize {
        self.remainders[0] * self.remainders[1] * self.rows * self.pitch
    }

    /// Returns the number of cells that `channels` channels need.
    pub(super) fn len(&self, channels: usize) -> usize {
        self.parts * channels * self.channel() + CHUNK
    }

    /// Returns the number of channels that fit into this many cells.
    pub(super) fn channels_in(&self, cells: usize) -> usize {
        cells.saturating_sub(CHUNK) / (self.parts * self.channel()).max(1)
    }

    /// Returns the distance from a run's beginning to the cells that the window's place `t` sees, in the first channel.
    pub(super) fn offset(&self, plan: &Plan, t: usize) -> usize {
        let across = plan.taps[1].count;
        let from = |axis: usize, t: usize| {
            let far = (plan.taps[axis].offset(t) - self.least[axis]).unsigned_abs();
            (far % plan.taps[axis].step, far / plan.taps[axis].step)
        };
        let ((plane_y, y), (plane_x, x)) = (from(0, t / across), from(1, t % across));
        (plane_y * self.remainders[1] + plane_x) * self.rows * self.pitch + y * self.pitch + x
    }

    /// Returns the runs of points `start..end`, which are among the task's, if `channels` channels are staged. There are at most as many runs as
    /// points.
    pub(super) fn runs<const N: usize>(
        &self,
        plan: &Plan,
        start: usize,
        end: usize,
        channels: usize,
    ) -> ArrayVec<Run, N> {
        let (points, across) = (plan.points(), plan.grid[1]);
        let mut runs = ArrayVec::new();
        let mut point = start;
        while point < end {
            let (image, at) = (point / points, point % points);
            let part = image - self.start / points;
            let (y, x) = (at / across, at % across);
            let len = (across - x).min(end - point);
            let first_row = self.part(plan, part)[0];
            let at = part * channels * self.channel() + (y - first_row) * self.pitch + x;
            runs.push(Run { column: point - start, len, at });
            point += len;
        }
        runs
    }
}

/// Part of the source to stage: `channels` channels of a group, from `first` on (counted in cells).
pub(super) struct Staging<'a, T> {
    pub(super) plan: &'a Plan,
    pub(super) stage: Stage,
    pub(super) source: &'a [T],
    pub(super) group: usize,
    pub(super) first: usize,
    pub(super) channels: usize,
}

simd! {
    /// Copies all cells into `to`.
    pub(super) fn stage<C: Cell, T: Cells<C>>(staging: &Staging<'_, T>, to: &mut [C]) = stage_body;
}

/// Types of cells that can be staged.
pub(super) trait Cell: Plain + Default {}
impl<C: Plain + Default> Cell for C {}

#[inline(always)]
fn stage_body<S: Isa, C: Cell, T: Cells<C>>(s: &Staging<'_, T>, to: &mut [C]) {
    let (plan, stage) = (s.plan, &s.stage);
    let mut at = 0;
    for part in 0..stage.parts {
        let image = stage.start / plan.points() + part;
        let low = stage.part(plan, part)[0] * plan.taps[0].step;
        for cell in s.first..s.first + s.channels {
            let channel = (image * plan.groups + s.group) * plan.channels + cell * T::CHANNELS;
            let two = T::CHANNELS == 2 && cell * 2 + 1 < plan.channels;
            for plane_y in 0..stage.remainders[0] {
                for plane_x in 0..stage.remainders[1] {
                    for row in 0..stage.rows {
                        let to = &mut to[at..at + stage.pitch];
                        at += stage.pitch;
                        let y = (low + row * plan.taps[0].step + plane_y) as isize + stage.least[0];
                        if y < 0 || y >= plan.source[0] as isize {
                            to.fill(C::default());
                            continue;
                        }
                        let first = line(plan, s.source, channel, y as usize);
                        let second = if two { Some(line(plan, s.source, channel + 1, y as usize)) } else { None };
                        stage_row::<C, T>(first, second, plane_x as isize + stage.least[1], plan.taps[1].step, to);
                    }
                }
            }
        }
    }
}

/// Returns row `y` of one plane of the source.
#[inline(always)]
fn line<'a, T>(plan: &Plan, source: &'a [T], plane: usize, y: usize) -> &'a [T] {
    &source[(plane * plan.source[0] + y) * plan.source[1]..][..plan.source[1]]
}

/// Fills `to` with the cells of every `step`-th element from `start` on; 0 outside of the row.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn stage_row<C: Cell, T: Cells<C>>(first: &[T], second: Option<&[T]>, start: isize, step: usize, to: &mut [C]) {
    let len = first.len() as isize;
    let from = start.min(0).unsigned_abs().div_ceil(step).min(to.len());
    let room = (len - start).max(0) as usize;
    let end = room.div_ceil(step).clamp(from, to.len());
    // Loops over indices, here and below: some iterators and fills become calls, which take longer than writing a narrow border.
    for i in 0..from {
        to[i] = C::default();
    }
    for i in end..to.len() {
        to[i] = C::default();
    }
    let to = &mut to[from..end];
    if to.is_empty() {
        return;
    }
    let start = (start + (from * step) as isize) as usize;
    let zero = T::put(<T::Compute as Default>::default());
    let n = to.len();
    let last = start + (n - 1) * step;
    let first = &first[start..=last];
    match (second, step) {
        (None, 1) => {
            for i in 0..n {
                to[i] = T::cell(first[i], zero);
            }
        }
        (Some(second), 1) => {
            let second = &second[start..=last];
            for i in 0..n {
                to[i] = T::cell(first[i], second[i]);
            }
        }
        // Pairs, because the compiler then knows that the lengths fit. With a check of each index these loops are not vectorised.
        (None, 2) => {
            let pairs = first.as_chunks::<2>().0;
            let whole = &mut to[..pairs.len()];
            for i in 0..whole.len() {
                whole[i] = T::cell(pairs[i][0], zero);
            }
            to[n - 1] = T::cell(first[2 * (n - 1)], zero);
        }
        (Some(second), 2) => {
            let second = &second[start..=last];
            let (pairs, others) = (first.as_chunks::<2>().0, second.as_chunks::<2>().0);
            let (whole, others) = (&mut to[..pairs.len()], &others[..pairs.len()]);
            for i in 0..whole.len() {
                whole[i] = T::cell(pairs[i][0], others[i][0]);
            }
            to[n - 1] = T::cell(first[2 * (n - 1)], second[2 * (n - 1)]);
        }
        _ => {
            for i in 0..n {
                to[i] = T::cell(first[i * step], second.map_or(zero, |second| second[start + i * step]));
            }
        }
    }
}

/// Copies runs of staged cells to `to`, a chunk at a time. Up to a chunk of cells after the last run is overwritten with garbage.
///
/// # Safety
/// From `from` on, what the runs name is staged, and a chunk more; `to` has room for all of them and a chunk more.
#[inline(always)]
pub(super) unsafe fn copy_runs<C: Copy>(runs: &[Run], from: *const C, to: *mut C) {
    for run in runs {
        let (from, to) = (from.wrapping_add(run.at), to.wrapping_add(run.column));
        let mut done = 0;
        while done < run.len {
            // SAFETY: as the caller asserts.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), CHUNK) };
            done += CHUNK;
        }
    }
}

/// Returns the one cell that the window's place `t` sees from `point` in one channel of a group. Used if the rows are too long to be staged.
pub(super) fn cell_at<C: Cell, T: Cells<C>>(
    plan: &Plan,
    source: &[T],
    group: usize,
    channel: usize,
    t: usize,
    point: usize,
) -> C {
    let (image, at) = (point / plan.points(), point % plan.points());
    let [across, places] = [plan.grid[1], plan.taps[1].count];
    let y = (at / across * plan.taps[0].step) as isize + plan.taps[0].offset(t / places);
    let x = (at % across * plan.taps[1].step) as isize + plan.taps[1].offset(t % places);
    let inside = |i: isize, axis: usize| usize::try_from(i).ok().filter(|i| *i < plan.source[axis]);
    let (Some(y), Some(x)) = (inside(y, 0), inside(x, 1)) else { return C::default() };
    let element = |channel: usize| {
        let plane = (image * plan.groups + group) * plan.channels + channel;
        source[(plane * plan.source[0] + y) * plan.source[1] + x]
    };
    let channel = channel * T::CHANNELS;
    let second = T::CHANNELS == 2 && channel + 1 < plan.channels;
    T::cell(element(channel), if second { element(channel + 1) } else { T::put(<T::Compute as Default>::default()) })
}
