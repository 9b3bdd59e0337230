//! Two-dimensional convolution and its gradients, as products of packed operands ([`crate::panels`]).
//!
//! Each task copies the part of the source that it needs, with its border of zeros (`stage.rs`). It then copies the matrix of patches from there,
//! run by run, straight into panels. That matrix (`im2col`) has a row per channel and place of the window, and a column per point. No buffer is as
//! large as an operand.
//!
//! - *Forward* and *input gradient* share one form (`plan.rs`). Their tasks are tiles of the target's points, numbered through all images
//!   (`grid.rs`).
//! - *Weight gradient*: tasks are blocks of the weight. If those are few, the points are cut into parts too, each with its own sums
//!   (`weight_grad.rs`).
//! - In f32, for windows of 3 × 3 at stride 1 and enough channels, all three take fewer multiplications (`winograd/`).
//!
//! The division into tasks depends on sizes alone, so that results repeat to the bit.

mod grid;
mod plan;
mod sizes;
mod stage;
mod weight_grad;
mod winograd;

use memcore::DType;
use memcore::backend::kernel::{Conv2d, Conv2dInputGrad, Conv2dWeightGrad};
use memcore::error::Result;

use crate::panels::pack::Packs;
use crate::panels::{Pair, Word, has_bf16_products};
use crate::refusal::unsupported;
use crate::view::{Context, SharedMut};
use plan::Plan;
use sizes::Sizes;
use stage::Cells;
use winograd::{WeightGrad, Winograd};

/// Calls a generic function with the type of the packed words and the element type of a dtype.
macro_rules! with_words {
    ($dtype:expr, $f:ident($($arg:expr),*), else $other:expr) => {
        match $dtype {
            memcore::DType::F64 => $f::<f64, f64>($($arg),*),
            memcore::DType::F32 => $f::<f32, f32>($($arg),*),
            memcore::DType::F16 => $f::<f32, half::f16>($($arg),*),
            memcore::DType::BF16 if has_bf16_products() => $f::<Pair, half::bf16>($($arg),*),
            memcore::DType::BF16 => $f::<f32, half::bf16>($($arg),*),
            _ => $other,
        }
    };
}

/// Runs a [`Conv2d`].
pub(crate) fn conv2d(ctx: &Context<'_>, call: &Conv2d) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.x, &call.weight, &call.out);
    let plan = Plan::forward(&s);
    if call.out.dtype == DType::F32
        && let Some(winograd) = Winograd::for_plan(&plan)
    {
        // SAFETY: core validated the call: `out` shares no byte with the others.
        let (x, weight, bias, out) = unsafe {
            (
                ctx.input(&call.x)?,
                ctx.input(&call.weight)?,
                ctx.input_option(&call.bias)?,
                SharedMut::new(ctx.output(&call.out)?),
            )
        };
        winograd.run(ctx, x, weight, bias, out);
        return Ok(());
    }
    with_words!(call.out.dtype, forward(ctx, call), else unsupported(&call.clone().into()))
}

fn forward<W: Word, T: Packs<W> + Cells<W>>(ctx: &Context<'_>, call: &Conv2d) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.x, &call.weight, &call.out);
    // SAFETY: core validated the call: `out` shares no byte with the others.
    let (x, weight, bias, out) = unsafe {
        (
            ctx.input::<T>(&call.x)?,
            ctx.input::<T>(&call.weight)?,
            ctx.input_option::<T>(&call.bias)?,
            SharedMut::new(ctx.output::<T>(&call.out)?),
        )
    };
    grid::run::<W, T>(ctx, &Plan::forward(&s), x, weight, bias, out);
    Ok(())
}

/// Runs a [`Conv2dInputGrad`].
pub(crate) fn conv2d_input_grad(ctx: &Context<'_>, call: &Conv2dInputGrad) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.out, &call.weight, &call.grad);
    let plan = Plan::input_grad(&s, [0, 0]);
    if call.out.dtype == DType::F32
        && let Some(winograd) = Winograd::for_plan(&plan)
    {
        // SAFETY: core validated the call: `out` shares no byte with the others.
        let (grad, weight, out) =
            unsafe { (ctx.input(&call.grad)?, ctx.input(&call.weight)?, SharedMut::new(ctx.output(&call.out)?)) };
        winograd.run(ctx, grad, weight, None, out);
        return Ok(());
    }
    with_words!(call.out.dtype, input_grad(ctx, call), else unsupported(&call.clone().into()))
}

fn input_grad<W: Word, T: Packs<W> + Cells<W>>(ctx: &Context<'_>, call: &Conv2dInputGrad) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.out, &call.weight, &call.grad);
    // SAFETY: core validated the call: `out` shares no byte with the others.
    let (grad, weight, out) = unsafe {
        (ctx.input::<T>(&call.grad)?, ctx.input::<T>(&call.weight)?, SharedMut::new(ctx.output::<T>(&call.out)?))
    };
    let [down, across] = s.geometry.stride;
    for remainder in (0..down).flat_map(|y| (0..across).map(move |x| [y, x])) {
        if remainder[0] < s.input[0] && remainder[1] < s.input[1] {
            grid::run::<W, T>(ctx, &Plan::input_grad(&s, remainder), grad, weight, None, out);
        }
    }
    Ok(())
}

/// Runs a [`Conv2dWeightGrad`].
pub(crate) fn conv2d_weight_grad(ctx: &Context<'_>, call: &Conv2dWeightGrad) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.x, &call.out, &call.grad);
    let plan = Plan::forward(&s);
    if call.out.dtype == DType::F32
        && let Some(winograd) = WeightGrad::for_plan(&plan)
    {
        // SAFETY: core validated the call: `out` shares no byte with the others.
        let (x, grad, out) = unsafe { (ctx.input(&call.x)?, ctx.input(&call.grad)?, ctx.output(&call.out)?) };
        winograd.run(ctx, x, grad, out);
        return Ok(());
    }
    with_words!(call.out.dtype, weight_grad(ctx, call), else unsupported(&call.clone().into()))
}

fn weight_grad<W: Word, T: Packs<W> + Cells<<T as Packs<W>>::Piece>>(
    ctx: &Context<'_>,
    call: &Conv2dWeightGrad,
) -> Result<()> {
    let s = Sizes::new(call.geometry, &call.x, &call.out, &call.grad);
    // SAFETY: core validated the call: `out` shares no byte with the others.
    let (x, grad, out) =
        unsafe { (ctx.input::<T>(&call.x)?, ctx.input::<T>(&call.grad)?, ctx.output::<T>(&call.out)?) };
    weight_grad::run::<W, T>(ctx, &Plan::forward(&s), x, grad, out);
    Ok(())
}
