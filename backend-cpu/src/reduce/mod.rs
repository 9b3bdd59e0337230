//! Reductions over any set of axes.
//!
//! Axes are sorted by their strides first, so only two shapes of loop remain: along runs of reduced elements
//! (`rows.rs`), or down columns of kept ones (`columns.rs`). Short stretches are reduced in the compute type, their results in
//! f64, and the cuts depend on sizes alone.

mod columns;
mod extremum;
mod rows;

use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::error::Result;
use memcore::{DType, Layout, MAX_RANK};

use crate::element::{Element, Number};
use crate::elementwise::{larger, smaller};
use crate::parallel::Plain;
use crate::stream::Runs;
use crate::view::{Context, SharedMut};

/// Whether the reduction exists for the type: a mean of integers is none of their type.
pub(crate) fn supports(k: &Reduce) -> bool {
    k.x.dtype.is_float() || k.op != ReduceOp::Mean
}

/// `out[kept] = op over reduced axes of x`.
pub(crate) fn reduce(ctx: &Context<'_>, k: &Reduce) -> Result<()> {
    match (k.x.dtype, k.out.dtype) {
        (DType::F16, DType::F32) => run::<half::f16, f32>(ctx, k),
        (DType::BF16, DType::F32) => run::<half::bf16, f32>(ctx, k),
        (DType::F32, _) => run::<f32, f32>(ctx, k),
        (DType::F64, _) => run::<f64, f64>(ctx, k),
        (DType::F16, _) => run::<half::f16, half::f16>(ctx, k),
        (DType::BF16, _) => run::<half::bf16, half::bf16>(ctx, k),
        (DType::I64, _) => run::<i64, i64>(ctx, k),
        (DType::I32, _) => run::<i32, i32>(ctx, k),
        (DType::I8, _) => run::<i8, i8>(ctx, k),
        (DType::U8 | DType::Bool, _) => run::<u8, u8>(ctx, k),
    }
}

/// From elements of type `T` to results of type `O`.
fn run<T: rows::Run, O: Element<Compute = T::Compute>>(ctx: &Context<'_>, k: &Reduce) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    if k.indices.is_some() {
        return extremum::reduce::<T>(ctx, k);
    }
    let plan = Plan::new(k)?;
    let (x, out) = (SharedMut::from_ptr(ctx.ptr::<T>(&k.x)?), SharedMut::from_ptr(ctx.ptr::<O>(&k.out)?));
    if plan.along_rows {
        rows::reduce(ctx, &plan, x, out);
    } else {
        columns::reduce(ctx, &plan, x, out);
    }
    Ok(())
}

/// A kept axis: its size and its strides in `x` and `out`.
#[derive(Clone, Copy, Default)]
struct Kept {
    size: usize,
    x: usize,
    out: usize,
}

/// A reduction as few axes as possible.
struct Plan {
    op: ReduceOp,
    /// Kept axes, the one with the smallest stride in `x` last.
    kept: [Kept; MAX_RANK],
    rank: usize,
    /// The reduced axes, the one with the smallest stride last.
    reduced: Runs,
    /// Elements per group.
    count: usize,
    /// Groups.
    groups: usize,
    /// Whether the smallest stride is a reduced one's.
    along_rows: bool,
}

impl Plan {
    fn new(k: &Reduce) -> Result<Self> {
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

    /// Offsets in `x` and `out` of a group, over the first `rank` kept axes.
    fn group(&self, rank: usize, mut index: usize) -> (usize, usize) {
        let (mut x, mut out) = (0, 0);
        for axis in self.kept[..rank].iter().rev() {
            let i = index % axis.size;
            index /= axis.size;
            x += i * axis.x;
            out += i * axis.out;
        }
        (x, out)
    }

    /// The result of a group from its total.
    fn finish<T: Element>(&self, total: Total<T>) -> T {
        let total = match self.op {
            ReduceOp::Mean => <T::Compute as Number>::mean(total, self.count),
            _ => total,
        };
        T::put(<T::Compute as Number>::narrow(total))
    }

    /// What joins with anything to that.
    fn start<C: Number>(&self) -> C {
        match self.op {
            ReduceOp::Max => C::LOWEST,
            ReduceOp::Min => C::HIGHEST,
            _ => C::default(),
        }
    }

    /// Two partial results as one.
    fn join<C: Number>(&self, a: C, b: C) -> C {
        match self.op {
            ReduceOp::Max => larger(a, b),
            ReduceOp::Min => smaller(a, b),
            _ => a.plus(b),
        }
    }
}

/// What results of stretches are kept in.
type Total<T> = <<T as Element>::Compute as Number>::Total;

/// Joins the partial results of each group in their order and writes the groups: `partials[piece][group]`.
fn finish_pieces<T: Element>(plan: &Plan, partials: &[Total<T>], out: SharedMut<T>)
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

#[cfg(test)]
mod tests;
