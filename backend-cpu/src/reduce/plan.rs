//! A reduction in as few axes as possible, and the rules that join partial results.

use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::error::Result;
use memcore::{Layout, MAX_RANK};

use crate::element::{Element, Number, larger, smaller};
use crate::parallel::Plain;
use crate::stream::Runs;
use crate::view::SharedMut;

/// A kept axis: its size and its strides in `x` and `out`.
#[derive(Clone, Copy, Default)]
pub(super) struct Kept {
    pub(super) size: usize,
    pub(super) x: usize,
    pub(super) out: usize,
}

/// A reduction in as few axes as possible.
pub(super) struct Plan {
    pub(super) op: ReduceOp,
    /// Kept axes, the one with the smallest stride in `x` last.
    pub(super) kept: [Kept; MAX_RANK],
    pub(super) rank: usize,
    /// The reduced axes, the one with the smallest stride last.
    pub(super) reduced: Runs,
    /// Elements per group.
    pub(super) count: usize,
    pub(super) groups: usize,
    /// True if a reduced axis has the smallest stride.
    pub(super) along_rows: bool,
}

impl Plan {
    pub(super) fn new(k: &Reduce) -> Result<Self> {
        let axes = |reduced: bool| {
            let mut axes: arrayvec::ArrayVec<(usize, usize, usize), MAX_RANK> = (0..k.x.layout.rank())
                .filter(|&i| k.reduces(i) == reduced && k.x.dims()[i] != 1)
                .map(|i| (k.x.layout.strides()[i], k.x.dims()[i], k.out.layout.strides()[i]))
                .collect();
            // Repeated elements (stride 0) count as far apart.
            axes.sort_by_key(|&(x, ..)| std::cmp::Reverse(if x == 0 { usize::MAX } else { x }));
            axes
        };
        let (kept_axes, reduced_axes) = (axes(false), axes(true));
        let sizes: arrayvec::ArrayVec<usize, MAX_RANK> = reduced_axes.iter().map(|a| a.1).collect();
        let strides: arrayvec::ArrayVec<usize, MAX_RANK> = reduced_axes.iter().map(|a| a.0).collect();
        let mut plan = Self {
            op: k.op,
            kept: [Kept::default(); MAX_RANK],
            rank: 0,
            reduced: Runs::new(&Layout::strided(&sizes, &strides)?),
            count: sizes.iter().product(),
            groups: kept_axes.iter().map(|a| a.1).product(),
            along_rows: false,
        };
        for &(x, size, out) in &kept_axes {
            let last = plan.rank.checked_sub(1).map(|i| &mut plan.kept[i]);
            match last {
                Some(last) if last.x == x * size && last.out == out * size => {
                    *last = Kept { size: last.size * size, x, out };
                }
                _ => {
                    plan.kept[plan.rank] = Kept { size, x, out };
                    plan.rank += 1;
                }
            }
        }
        let smallest = |stride: Option<usize>| stride.filter(|&s| s > 0).unwrap_or(usize::MAX);
        let kept = smallest(kept_axes.last().map(|a| a.0));
        plan.along_rows = smallest(reduced_axes.last().map(|a| a.0)) <= kept;
        Ok(plan)
    }

    /// Returns the offsets of a group in `x` and `out`, over the first `rank` kept axes.
    pub(super) fn group(&self, rank: usize, mut index: usize) -> (usize, usize) {
        let (mut x, mut out) = (0, 0);
        for axis in self.kept[..rank].iter().rev() {
            let i = index % axis.size;
            index /= axis.size;
            x += i * axis.x;
            out += i * axis.out;
        }
        (x, out)
    }

    /// Returns the result of a group from its total.
    pub(super) fn finish<T: Element>(&self, total: Total<T>) -> T {
        let total = match self.op {
            ReduceOp::Mean => <T::Compute as Number>::mean(total, self.count),
            _ => total,
        };
        T::put(<T::Compute as Number>::narrow(total))
    }

    /// Returns the neutral element: joined with any value, it gives that value.
    pub(super) fn start<C: Number>(&self) -> C {
        match self.op {
            ReduceOp::Max => C::LOWEST,
            ReduceOp::Min => C::HIGHEST,
            _ => C::default(),
        }
    }

    /// Joins two partial results.
    pub(super) fn join<C: Number>(&self, a: C, b: C) -> C {
        match self.op {
            ReduceOp::Max => larger(a, b),
            ReduceOp::Min => smaller(a, b),
            _ => a.plus(b),
        }
    }
}

/// Type in which results of stretches are kept.
pub(super) type Total<T> = <<T as Element>::Compute as Number>::Total;

/// Joins the partial results of each group in their order, and writes the groups: `partials[piece][group]`.
pub(super) fn finish_pieces<T: Element>(plan: &Plan, partials: &[Total<T>], out: SharedMut<T>)
where
    Total<T>: Plain,
{
    for group in 0..plan.groups {
        let mut total = plan.start::<Total<T>>();
        for &partial in partials[group..].iter().step_by(plan.groups) {
            total = plan.join(total, partial);
        }
        let (_, at) = plan.group(plan.rank, group);
        // SAFETY: a group's place in `out`, which nobody else writes.
        unsafe { *out.get().add(at) = plan.finish::<T>(total) };
    }
}
