//! Reductions of groups whose elements lie along runs: sums over the last axis, over everything, over all axes except the channels.

use memcore::backend::kernel::ReduceOp;

use super::plan::{Plan, Total, finish_pieces};
use crate::element::{Element, Number};
use crate::lanes::{Largest, RUN, Smallest, Squares, Sum, fold};
use crate::parallel::INLINE_ELEMENTS;
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Number of groups below which groups are cut into pieces.
const MANY: usize = 16;

/// Fewest elements per piece of a group.
const PIECE: usize = 32 << 10;

/// Most pieces per group.
const MAX_PIECES: usize = 64;

pub(super) fn reduce<T: Run, O: Element<Compute = T::Compute>>(
    ctx: &Context<'_>,
    plan: &Plan,
    x: SharedMut<T>,
    out: SharedMut<O>,
) {
    let pieces = if plan.groups >= MANY { 1 } else { (plan.count / PIECE).clamp(1, MAX_PIECES) };
    if pieces == 1 {
        let per_task = (INLINE_ELEMENTS / 2).div_ceil(plan.count.max(1));
        ctx.for_pieces(plan.groups, per_task, plan.count, |start, end| {
            for group in start..end {
                let (from, to) = plan.group(plan.rank, group);
                // SAFETY: a group's elements lie in bounds; its place in `out` is this task's alone.
                unsafe { *out.get().add(to) = plan.finish::<O>(span(plan, x.get().add(from), 0, plan.count)) };
            }
        });
        return;
    }
    let mut scratch = ctx.scratch();
    let partials = scratch.slice_mut::<Total<T>>(pieces * plan.groups);
    let shared = SharedMut::new(partials);
    let piece_len = plan.count.div_ceil(pieces);
    ctx.for_each(pieces * plan.groups, |task| {
        let (piece, group) = (task / plan.groups, task % plan.groups);
        let start = (piece * piece_len).min(plan.count);
        let len = piece_len.min(plan.count - start);
        let (from, _) = plan.group(plan.rank, group);
        // SAFETY: a group's elements lie in bounds; each task writes one partial result.
        unsafe { *shared.get().add(task) = span(plan, x.get().add(from), start, len) };
    });
    finish_pieces(plan, partials, out);
}

/// Reduces elements `start..start + len` of the group that begins at `x`.
///
/// # Safety
/// They lie in bounds.
unsafe fn span<T: Run>(plan: &Plan, x: *const T, start: usize, len: usize) -> Total<T> {
    let mut total = plan.start::<Total<T>>();
    if len == 0 {
        return total;
    }
    plan.reduced.for_each(start, len, |offset, stride, _, n| {
        for first in (0..n).step_by(RUN) {
            let len = RUN.min(n - first);
            // SAFETY: the runs of a checked layout lie in bounds.
            let partial = unsafe {
                let x = x.add(offset + first * stride);
                if stride == 1 {
                    run(plan.op, std::slice::from_raw_parts(x, len))
                } else {
                    strided_run(plan, x, stride, len)
                }
            };
            total = plan.join(total, partial.widen());
        }
    });
    total
}

simd! {
    fn run<T: Run>(op: ReduceOp, xs: &[T]) -> T::Compute = run_body;
}

#[inline(always)]
fn run_body<S: Isa, T: Run>(op: ReduceOp, xs: &[T]) -> T::Compute {
    T::run::<S>(op, xs)
}

/// Element types whose runs can be reduced: floats with explicit vectors, integers by loops that the compiler may reorder.
pub(super) trait Run: Element {
    /// Reduces all elements by `op`.
    fn run<S: Isa>(op: ReduceOp, xs: &[Self]) -> Self::Compute;
}

macro_rules! floats {
    ($($T:ty)*) => {$(
        impl Run for $T {
            #[inline(always)]
            fn run<S: Isa>(op: ReduceOp, xs: &[Self]) -> Self::Compute {
                match op {
                    ReduceOp::Sum | ReduceOp::Mean => fold::<S, $T>(Sum, xs),
                    ReduceOp::SumSquares => fold::<S, $T>(Squares, xs),
                    ReduceOp::Max => fold::<S, $T>(Largest, xs),
                    ReduceOp::Min => fold::<S, $T>(Smallest, xs),
                }
            }
        }
    )*};
}
floats!(f32 f64 half::f16 half::bf16);

macro_rules! integers {
    ($($T:ty)*) => {$(
        impl Run for $T {
            #[inline(always)]
            fn run<S: Isa>(op: ReduceOp, xs: &[Self]) -> i64 {
                let mut total = match op {
                    ReduceOp::Max => i64::MIN,
                    ReduceOp::Min => i64::MAX,
                    _ => 0,
                };
                for &x in xs {
                    let x = x.get();
                    total = match op {
                        ReduceOp::Sum | ReduceOp::Mean => total.wrapping_add(x),
                        ReduceOp::SumSquares => total.wrapping_add(x.wrapping_mul(x)),
                        ReduceOp::Max => total.max(x),
                        ReduceOp::Min => total.min(x),
                    };
                }
                total
            }
        }
    )*};
}
integers!(i64 i32 i8 u8);

/// # Safety
/// `n` elements from `x` on, `stride` apart, lie in bounds.
unsafe fn strided_run<T: Element>(plan: &Plan, x: *const T, stride: usize, n: usize) -> T::Compute {
    let mut total = plan.start::<T::Compute>();
    for i in 0..n {
        // SAFETY: passed on to the caller.
        let x = unsafe { *x.add(i * stride) }.get();
        total = plan.join(total, if plan.op == ReduceOp::SumSquares { x.times(x) } else { x });
    }
    total
}
