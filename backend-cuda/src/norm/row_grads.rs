//! Gradients of layer and root-mean-square normalisation.

use memcore::backend::Operand;
use memcore::backend::kernel::{LayerNormGrad, RmsNormGrad};
use memcore::{DType, Result};

use super::{
    COLUMN_SUMS, ColumnSumsArgs, PARAMETER_GRAD, ParameterGradArgs, ROW_NORM_GRAD, ROW_NORM_GRADS, RowNormGradArgs,
    RowNormGradsArgs,
};
use crate::kernel::Tag;
use crate::launch::{Context, Grid, ONE, WIDE};
use crate::rows;

/// Those gradients of [`LayerNorm`](memcore::backend::kernel::LayerNorm) that are present.
pub(crate) fn layer_norm_grad(ctx: &Context<'_>, k: &LayerNormGrad) -> Result<()> {
    let args = arguments(ctx, [&k.out_x, &k.weight], [&k.grad, &k.x, &k.rstd], Some(&k.mean))?;
    gradients(ctx, k.x.dtype, &args, [&k.out_weight, &k.out_bias])
}

/// Those gradients of [`RmsNorm`](memcore::backend::kernel::RmsNorm) that are present.
pub(crate) fn rms_norm_grad(ctx: &Context<'_>, k: &RmsNormGrad) -> Result<()> {
    let args = arguments(ctx, [&k.out_x, &k.weight], [&k.grad, &k.x, &k.rstd], None)?;
    gradients(ctx, k.x.dtype, &args, [&k.out_weight, &None])
}

fn arguments(
    ctx: &Context<'_>,
    [out, weight]: [&Option<Operand>; 2],
    [grad, x, rstd]: [&Operand; 3],
    mean: Option<&Operand>,
) -> Result<RowNormGradArgs> {
    Ok(RowNormGradArgs {
        out: ctx.at_optional(out)?,
        grad: ctx.at(grad)?,
        x: ctx.at(x)?,
        weight: ctx.at_optional(weight)?,
        mean: mean.map_or(Ok(0), |mean| ctx.at(mean))?,
        rstd: ctx.at(rstd)?,
        rows: x.dims()[0] as u64,
        n: x.dims()[1] as u64,
    })
}

/// `out`: the gradients of weight and bias.
fn gradients(ctx: &Context<'_>, dtype: DType, a: &RowNormGradArgs, out: [&Option<Operand>; 2]) -> Result<()> {
    let wanted = out.iter().any(|out| out.is_some());
    match together(ctx, dtype, a).filter(|_| wanted) {
        Some((form, blocks)) => {
            let partial = partial_sums(ctx, a.n, blocks, out);
            let args = RowNormGradsArgs { rows: *a, weight_sums: partial[0], bias_sums: partial[1] };
            ctx.launch(ROW_NORM_GRADS, Tag::tag_of(dtype), form, Grid::over_blocks(blocks), &args)?;
            column_sums(ctx, dtype, (a.n, blocks), partial, out)
        }
        None => {
            row_norm_grad(ctx, dtype, a)?;
            parameter_grads(ctx, dtype, a, out)
        }
    }
}

/// Form and number of blocks, if one launch computes all gradients: then each row is read once, and not again for the parameters' sums.
/// Each block holds the sums of all columns, in registers, of which there are enough for 16-bit rows of up to 4096; a warp has
/// shorter rows sooner. With fewer rows a block's sums would be as much to write and to read as its rows are.
fn together(ctx: &Context<'_>, dtype: DType, a: &RowNormGradArgs) -> Option<(usize, u64)> {
    const BLOCKS_PER_PROCESSOR: u64 = 2;
    const ROWS_PER_BLOCK: u64 = 4;
    const LENGTHS: [u64; 2] = [2048, 4096];
    let blocks = u64::from(ctx.properties.processors) * BLOCKS_PER_PROCESSOR;
    let bases = [a.out, a.grad, a.x, a.weight].map(|base| (base, dtype.size()));
    let fits = dtype.is_half()
        && a.out != 0
        && a.n > rows::WARP_ROW
        && a.rows >= blocks * ROWS_PER_BLOCK
        && blocks * a.n * SUMS_BYTES <= ctx.scratch.bytes
        && rows::in_packs(a.n, dtype, &bases);
    LENGTHS.iter().position(|&most| a.n <= most).filter(|_| fits).map(|form| (form, blocks))
}

fn row_norm_grad(ctx: &Context<'_>, dtype: DType, a: &RowNormGradArgs) -> Result<()> {
    if a.rows * a.n == 0 || a.out == 0 {
        return Ok(());
    }
    let size = dtype.size();
    let bases = [(a.out, size), (a.grad, size), (a.x, size), (a.weight, size)];
    let (form, grid) = rows::form(ctx, a.rows, a.n, dtype, &bases);
    ctx.launch(ROW_NORM_GRAD, Tag::tag_of(dtype), form, grid, a)
}

/// Minimum rows per block for the parameters' gradients, and maximum number of chunks.
const CHUNK_ROWS: u64 = 64;
const MAX_CHUNKS: u64 = 256;

/// Bytes of both sums of a column.
const SUMS_BYTES: u64 = 8;

/// Where chunks leave their sums of weight and bias in the scratch; 0 if they are not wanted.
fn partial_sums(ctx: &Context<'_>, n: u64, chunks: u64, out: [&Option<Operand>; 2]) -> [u64; 2] {
    let places = [ctx.scratch.address, ctx.scratch.address + chunks * n * 4];
    std::array::from_fn(|which| if out[which].is_some() { places[which] } else { 0 })
}

/// Adds up what the chunks have left in `partial`, for `n` columns.
fn column_sums(
    ctx: &Context<'_>,
    dtype: DType,
    (n, chunks): (u64, u64),
    partial: [u64; 2],
    out: [&Option<Operand>; 2],
) -> Result<()> {
    let args = ColumnSumsArgs { out: [ctx.at_optional(out[0])?, ctx.at_optional(out[1])?], partial, n, chunks };
    let grid = Grid { blocks: [n.div_ceil(32) as u32, 2, 1], ..Grid::over_blocks(1) };
    ctx.launch(COLUMN_SUMS, Tag::tag_of(dtype), 0, grid, &args)
}

/// Sums over rows, in chunks that write their sums to the scratch.
fn parameter_grads(ctx: &Context<'_>, dtype: DType, a: &RowNormGradArgs, out: [&Option<Operand>; 2]) -> Result<()> {
    if a.n == 0 || out.iter().all(|out| out.is_none()) {
        return Ok(());
    }
    // Both sums in one pass, with as many chunks as the scratch has room for.
    let room = ctx.scratch.bytes / SUMS_BYTES;
    let chunks = a.rows.div_ceil(CHUNK_ROWS).clamp(1, MAX_CHUNKS).min((room / a.n).max(1));
    let partial = partial_sums(ctx, a.n, chunks, out);
    let args = ParameterGradArgs {
        grad: a.grad,
        x: a.x,
        mean: a.mean,
        rstd: a.rstd,
        weight_sums: partial[0],
        bias_sums: partial[1],
        rows: a.rows,
        n: a.n,
        chunk_rows: a.rows.div_ceil(chunks),
    };
    // A thread reads two columns at once, if they are aligned.
    let pairs = a.n.is_multiple_of(2) && [a.grad, a.x].iter().all(|base| base.is_multiple_of(2 * dtype.size()));
    let (form, columns) = if pairs { (WIDE, 2) } else { (ONE, 1) };
    let grid = Grid { blocks: [a.n.div_ceil(32 * columns) as u32, chunks as u32, 1], ..Grid::over_blocks(1) };
    ctx.launch(PARAMETER_GRAD, Tag::tag_of(dtype), form, grid, &args)?;
    column_sums(ctx, dtype, (a.n, chunks), partial, out)
}
