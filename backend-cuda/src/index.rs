//! Rows of a table by index, and back.

use std::ffi::c_void;

use memcore::backend::kernel::{Gather, ScatterAdd};
use memcore::{DType, Result};

use crate::arguments::arguments;
use crate::elementwise::{scalar_bits, wide};
use crate::kernel::{ONE_FORM, ONE_WIDE, Tag, kernels};
use crate::launch::{Context, Grid, ONE, WIDE};

arguments! { ARGUMENTS:
    struct GatherArgs {
        out: *mut c_void,
        table: *const c_void,
        indices: *const i64,
        rows: u64,
        /// Steps from row to row, and from element to element; elements of packs are adjacent.
        row_step: u64,
        step: u64,
        /// Packs of a row; all packs of the result.
        row_packs: u64,
        packs: u64,
        /// Value for an index outside the table.
        missing: u64,
    }

    struct ScatterArgs {
        out: *mut c_void,
        src: *const c_void,
        indices: *const i64,
        /// One byte per row of the table: set if an index names the row. Null if every row is searched for.
        named: *mut u8,
        rows: u64,
        n: u64,
        /// Steps of the source from row to row, and from element to element.
        row_step: u64,
        step: u64,
        count: u64,
        padding_index: i64,
        has_padding: u32,
        accumulate: u32,
    }
}

kernels! { KERNELS in Index:
    GATHER: "gather" BITS ONE_WIDE => GatherArgs;
    CLEAR_NAMED: "clear_named" ONLY ONE_FORM => ScatterArgs;
    MARK_NAMED: "mark_named" ONLY ONE_FORM => ScatterArgs;
    SCATTER_ADD: "scatter_add" FLOATS ONE_FORM => ScatterArgs;
}

/// `out[i] = table[indices[i]]`.
pub(crate) fn gather(ctx: &Context<'_>, k: &Gather) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    let (dtype, n) = (k.out.dtype, k.out.dims()[1] as u64);
    let (out, table) = (ctx.at(&k.out)?, ctx.at(&k.table)?);
    let [row_step, step] = [0, 1].map(|axis| k.table.layout.strides()[axis] as u64);
    let together = step == 1 && row_step.is_multiple_of(wide(dtype));
    let aligned = together && [out, table].iter().all(|base| base.is_multiple_of(16));
    let (form, pack) = if n.is_multiple_of(wide(dtype)) && aligned { (WIDE, wide(dtype)) } else { (ONE, 1) };
    let args = GatherArgs {
        out,
        table,
        indices: ctx.at(&k.indices)?,
        rows: k.table.dims()[0] as u64,
        row_step,
        step,
        row_packs: n / pack,
        packs: k.out.numel() as u64 / pack,
        missing: if dtype.is_float() { scalar_bits(dtype, f64::NAN) } else { scalar_bits(DType::I64, 0.0) },
    };
    ctx.launch(GATHER, Tag::bits(dtype), form, ctx.grid(args.packs), &args)
}

/// Columns that a warp adds up at a time.
const WARP_COLUMNS: u64 = 128;

/// `out[r] = Σ_{i: indices[i] = r} src[i]`, in the order of `i`.
pub(crate) fn scatter_add(ctx: &Context<'_>, k: &ScatterAdd) -> Result<()> {
    let (rows, n) = (k.out.dims()[0] as u64, k.out.dims()[1] as u64);
    if rows * n == 0 {
        return Ok(());
    }
    let count = k.indices.numel() as u64;
    let args = ScatterArgs {
        out: ctx.at(&k.out)?,
        src: ctx.at(&k.src)?,
        indices: ctx.at(&k.indices)?,
        // The flags take one byte per row. If they do not fit the scratch, every row is searched for.
        named: if rows <= ctx.scratch.bytes { ctx.scratch.address } else { 0 },
        rows,
        n,
        row_step: k.src.layout.strides()[0] as u64,
        step: k.src.layout.strides()[1] as u64,
        count,
        padding_index: k.padding_index.unwrap_or(0),
        has_padding: k.padding_index.is_some().into(),
        accumulate: k.accumulate.into(),
    };
    if args.named != 0 {
        ctx.launch(CLEAR_NAMED, Tag::Only, 0, ctx.grid(rows), &args)?;
        if count > 0 {
            ctx.launch(MARK_NAMED, Tag::Only, 0, ctx.grid(count), &args)?;
        }
    }
    let columns = n.div_ceil(WARP_COLUMNS) as u32;
    let along = ctx.grid(rows * 32);
    let grid = Grid { blocks: [along.blocks[0], columns, 1], ..along };
    ctx.launch(SCATTER_ADD, Tag::tag_of(k.out.dtype), 0, grid, &args)
}

/// True if the blocks of columns fit the grid's second dimension.
pub(crate) fn supports_scatter(k: &ScatterAdd) -> bool {
    (k.out.dims()[1] as u64) < 65_535 * WARP_COLUMNS
}
