//! Softmax and log-softmax over rows.

use memcore::Result;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};

use crate::elementwise::type_number;
use crate::kernels::{Kernel, Tag};
use crate::launch::Context;
use crate::rows;

/// `SoftmaxArgs` of the kernels, as the struct below.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SoftmaxArgs {
    out: u64,
    x: u64,
    rows: u64,
    n: u64,
    from: u32,
    log: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SoftmaxGradArgs {
    out: u64,
    y: u64,
    grad: u64,
    rows: u64,
    n: u64,
    log: u32,
    unused: u32,
}

/// `out = eˣ⁻ᵐ / Σ eˣ⁻ᵐ` over each row, or its logarithm.
pub(crate) fn softmax(ctx: &Context<'_>, k: &Softmax) -> Result<()> {
    let (rows, n) = (k.x.dims()[0] as u64, k.x.dims()[1] as u64);
    if rows * n == 0 {
        return Ok(());
    }
    let (out, x) = (ctx.at(&k.out)?, ctx.at(&k.x)?);
    let (form, grid) = rows::form(ctx, rows, n, &[(out, k.out.dtype.size()), (x, k.x.dtype.size())]);
    let args = SoftmaxArgs { out, x, rows, n, from: type_number(k.x.dtype), log: k.log.into() };
    ctx.launch(Kernel::Softmax, Tag::of(k.out.dtype), form, grid, &args)
}

/// `y·(grad − Σ grad·y)`, for the logarithm `grad − e^y·Σ grad`.
pub(crate) fn softmax_grad(ctx: &Context<'_>, k: &SoftmaxGrad) -> Result<()> {
    let (rows, n) = (k.y.dims()[0] as u64, k.y.dims()[1] as u64);
    if rows * n == 0 {
        return Ok(());
    }
    let (out, y, grad) = (ctx.at(&k.out)?, ctx.at(&k.y)?, ctx.at(&k.grad)?);
    let size = k.y.dtype.size();
    let (form, grid) = rows::form(ctx, rows, n, &[(out, size), (y, size), (grad, size)]);
    let args = SoftmaxGradArgs { out, y, grad, rows, n, log: k.log.into(), unused: 0 };
    ctx.launch(Kernel::SoftmaxGrad, Tag::of(k.y.dtype), form, grid, &args)
}

/// The gradient has one type for all its operands.
pub(crate) fn supports_grad(k: &SoftmaxGrad) -> bool {
    k.out.dtype == k.y.dtype
}
