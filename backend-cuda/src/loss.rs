//! Negative log-likelihood of class indices.

use std::ffi::c_void;

use memcore::Result;
use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};

use crate::arguments::arguments;
use crate::kernel::{ONE_FORM, Tag, kernels};
use crate::launch::{Context, Grid};

arguments! { ARGUMENTS:
    struct NllLossArgs {
        out: *mut c_void,
        total_weight: *mut c_void,
        log_probs: *const c_void,
        target: *const i64,
        rows: u64,
        classes: u64,
        inner: u64,
        ignore_index: i64,
        reduction: u32,
        unused: u32,
    }

    struct NllLossGradArgs {
        out: *mut c_void,
        grad: *const c_void,
        total_weight: *const c_void,
        target: *const i64,
        rows: u64,
        classes: u64,
        inner: u64,
        /// Strides of the gradient; 0 for a scalar.
        example: u64,
        position: u64,
        ignore_index: i64,
        reduction: u32,
        unused: u32,
    }
}

kernels! { KERNELS in Loss:
    NLL_LOSS: "nll_loss" FLOATS ONE_FORM => NllLossArgs;
    NLL_LOSS_GRAD: "nll_loss_grad" FLOATS ONE_FORM => NllLossGradArgs;
}

/// Threads of the one block that adds up the losses.
const LOSS_THREADS: u32 = 1024;

fn number(reduction: Reduction) -> u32 {
    match reduction {
        Reduction::None => 0,
        Reduction::Mean => 1,
        Reduction::Sum => 2,
    }
}

/// The losses, reduced, and the number of targets that count.
pub(crate) fn nll_loss(ctx: &Context<'_>, k: &NllLoss) -> Result<()> {
    let args = NllLossArgs {
        out: ctx.at(&k.out)?,
        total_weight: ctx.at(&k.total_weight)?,
        log_probs: ctx.at(&k.log_probs)?,
        target: ctx.at(&k.target)?,
        rows: k.log_probs.dims()[0] as u64,
        classes: k.log_probs.dims()[1] as u64,
        inner: k.log_probs.dims()[2] as u64,
        ignore_index: k.ignore_index,
        reduction: number(k.reduction),
        unused: 0,
    };
    let grid = Grid { threads: LOSS_THREADS, ..Grid::over_blocks(1) };
    ctx.launch(NLL_LOSS, Tag::tag_of(k.log_probs.dtype), 0, grid, &args)
}

/// The gradient of [`NllLoss`].
pub(crate) fn nll_loss_grad(ctx: &Context<'_>, k: &NllLossGrad) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    let [example, position] = k.grad_strides().map(|stride| stride as u64);
    let args = NllLossGradArgs {
        out: ctx.at(&k.out)?,
        grad: ctx.at(&k.grad)?,
        total_weight: ctx.at(&k.total_weight)?,
        target: ctx.at(&k.target)?,
        rows: k.out.dims()[0] as u64,
        classes: k.out.dims()[1] as u64,
        inner: k.out.dims()[2] as u64,
        example,
        position,
        ignore_index: k.ignore_index,
        reduction: number(k.reduction),
        unused: 0,
    };
    // One warp per row, or one per class of a row.
    let warps = if args.inner == 1 { args.rows } else { args.rows * args.classes };
    ctx.launch(NLL_LOSS_GRAD, Tag::tag_of(k.out.dtype), 0, ctx.grid(warps * 32), &args)
}
