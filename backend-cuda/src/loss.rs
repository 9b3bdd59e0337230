//! Negative log-likelihood of class indices.

use memcore::Result;
use memcore::backend::kernel::{NllLoss, NllLossGrad, Reduction};

use crate::kernels::{Kernel, Tag};
use crate::launch::{Context, Grid};

/// `NllLossArgs` of the kernels, as the struct below.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NllLossArgs {
    out: u64,
    total_weight: u64,
    log_probs: u64,
    target: u64,
    rows: u64,
    classes: u64,
    inner: u64,
    ignore_index: i64,
    reduction: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NllLossGradArgs {
    out: u64,
    grad: u64,
    total_weight: u64,
    target: u64,
    rows: u64,
    classes: u64,
    inner: u64,
    example: u64,
    position: u64,
    ignore_index: i64,
    reduction: u32,
    unused: u32,
}

/// Threads of the one block that adds the losses up.
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
    let grid = Grid { threads: LOSS_THREADS, ..Grid::of(1) };
    ctx.launch(Kernel::NllLoss, Tag::of(k.log_probs.dtype), 0, grid, &args)
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
    // A warp for each row, or for each class of one.
    let warps = if args.inner == 1 { args.rows } else { args.rows * args.classes };
    ctx.launch(Kernel::NllLossGrad, Tag::of(k.out.dtype), 0, ctx.grid(warps * 32), &args)
}
