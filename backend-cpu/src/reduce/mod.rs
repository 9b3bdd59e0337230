//! Reductions over any set of axes.
//!
//! Axes are sorted by their strides first, so that only two shapes of loop remain: along runs of reduced elements (`rows.rs`), or down
//! columns of kept ones (`columns.rs`). Short stretches are reduced in the compute type, and their results in f64. The cuts depend only on
//! sizes.

mod columns;
mod extremum;
mod plan;
mod rows;

use memcore::DType;
use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::error::Result;

use crate::element::Element;
use crate::view::{Context, SharedMut};
use plan::Plan;

/// True if the reduction exists for the type: the mean of integers is not an integer.
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
        (DType::C64, _) => Err(crate::elementwise::refused("reduce", DType::C64)),
    }
}

/// Reduces elements of type `T` to results of type `O`.
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
