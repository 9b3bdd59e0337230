//! Softmax and log-softmax over rows or columns.

use std::ffi::c_void;

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};

use crate::arguments::arguments;
use crate::elementwise::type_number;
use crate::kernel::{ROWS, Tag, kernels};
use crate::launch::{Context, Grid, THREADS};
use crate::rows;

arguments! { ARGUMENTS:
    struct SoftmaxArgs {
        out: *mut c_void,
        x: *const c_void,
        /// Number of groups, and elements of a group.
        rows: u64,
        n: u64,
        /// Distance of neighbouring elements in a group: 1 in a row, otherwise the number of columns of a slice.
        inner: u64,
        /// Type of x; the kernel has the type of out.
        from: u32,
        log: u32,
    }

    struct SoftmaxGradArgs {
        out: *mut c_void,
        y: *const c_void,
        grad: *const c_void,
        rows: u64,
        n: u64,
        inner: u64,
        log: u32,
        unused: u32,
    }
}

kernels! { KERNELS in Softmax:
    SOFTMAX: "softmax" FLOATS ROWS => SoftmaxArgs;
    SOFTMAX_GRAD: "softmax_grad" FLOATS ROWS => SoftmaxGradArgs;
    SOFTMAX_COLUMNS: "softmax_columns" FLOATS &["_thread", "_tile"] => SoftmaxArgs;
    SOFTMAX_GRAD_COLUMNS: "softmax_grad_columns" FLOATS &["_thread", "_tile"] => SoftmaxGradArgs;
}

/// `out = eˣ⁻ᵐ / Σ eˣ⁻ᵐ` over the middle dimension, or its logarithm.
pub(crate) fn softmax(ctx: &Context<'_>, k: &Softmax) -> Result<()> {
    let [rows, n, inner] = groups(&k.x);
    if rows * n == 0 {
        return Ok(());
    }
    let (out, x) = (ctx.at(&k.out)?, ctx.at(&k.x)?);
    let args = SoftmaxArgs { out, x, rows, n, inner, from: type_number(k.x.dtype), log: k.log.into() };
    if inner == 1 {
        let (form, grid) = rows::form(ctx, rows, n, k.out.dtype, &[(out, k.out.dtype.size()), (x, k.x.dtype.size())]);
        return ctx.launch(SOFTMAX, Tag::tag_of(k.out.dtype), form, grid, &args);
    }
    let (form, grid) = columns_form(ctx, rows, n);
    ctx.launch(SOFTMAX_COLUMNS, Tag::tag_of(k.out.dtype), form, grid, &args)
}

/// `y·(grad − Σ grad·y)`; for the logarithm, `grad − e^y·Σ grad`.
pub(crate) fn softmax_grad(ctx: &Context<'_>, k: &SoftmaxGrad) -> Result<()> {
    let [rows, n, inner] = groups(&k.y);
    if rows * n == 0 {
        return Ok(());
    }
    let (out, y, grad) = (ctx.at(&k.out)?, ctx.at(&k.y)?, ctx.at(&k.grad)?);
    let args = SoftmaxGradArgs { out, y, grad, rows, n, inner, log: k.log.into(), unused: 0 };
    if inner == 1 {
        let size = k.y.dtype.size();
        let (form, grid) = rows::form(ctx, rows, n, k.out.dtype, &[(out, size), (y, size), (grad, size)]);
        return ctx.launch(SOFTMAX_GRAD, Tag::tag_of(k.y.dtype), form, grid, &args);
    }
    let (form, grid) = columns_form(ctx, rows, n);
    ctx.launch(SOFTMAX_GRAD_COLUMNS, Tag::tag_of(k.y.dtype), form, grid, &args)
}

/// Number of groups of an operand `[outer, n, inner]`, elements of a group, and their distance.
fn groups(x: &Operand) -> [u64; 3] {
    let [outer, n, inner] = [x.dims()[0] as u64, x.dims()[1] as u64, x.dims()[2] as u64];
    [outer * inner, n, inner]
}

/// Returns form (`_thread`, `_tile`) and grid for `columns` columns of `n` elements: one thread per column if that
/// keeps the device busy, or if there is nothing to share.
fn columns_form(ctx: &Context<'_>, columns: u64, n: u64) -> (usize, Grid) {
    /// Shorter columns are not worth several threads.
    const SHORT: u64 = 32;
    /// In longer ones the error of a single thread's sum over all elements would be too large.
    const LONG: u64 = 1024;
    /// Threads per column in a tile; `TILE_ROWS` in the kernels.
    const ROWS: u64 = 8;
    let threads = u64::from(ctx.properties.processors) * u64::from(THREADS) * 2;
    if n < SHORT || (n < LONG && columns >= threads) {
        return (0, ctx.grid(columns));
    }
    let most = u64::from(ctx.properties.processors) * 256;
    (1, Grid::over_blocks(columns.div_ceil(u64::from(THREADS) / ROWS).min(most)))
}

/// True if all operands have one type: the gradient's kernel has no other.
pub(crate) fn supports_grad(k: &SoftmaxGrad) -> bool {
    k.out.dtype == k.y.dtype
}
