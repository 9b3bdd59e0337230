//! int8 with one scale per row.

use std::ffi::c_void;

use memcore::Result;
use memcore::backend::kernel::{DequantizeInt8, QuantizeInt8};

use crate::arguments::arguments;
use crate::kernel::{ONE_WIDE, ROWS, Tag, kernels};
use crate::launch::{Context, ONE, WIDE};
pub(crate) use crate::matmul::matmul_int8;
use crate::rows;

arguments! { ARGUMENTS:
    struct QuantizeArgs {
        out: *mut i8,
        scale: *mut f32,
        x: *const c_void,
        rows: u64,
        n: u64,
    }

    struct DequantizeArgs {
        out: *mut c_void,
        scale: *const f32,
        x: *const i8,
        packs: u64,
        row_packs: u64,
    }
}

kernels! { KERNELS in Quant:
    QUANTIZE_INT8: "quantize_int8" FLOATS ROWS => QuantizeArgs;
    DEQUANTIZE_INT8: "dequantize_int8" FLOATS ONE_WIDE => DequantizeArgs;
}

/// Converts each row to int8, scaled by its largest magnitude.
pub(crate) fn quantize_int8(ctx: &Context<'_>, k: &QuantizeInt8) -> Result<()> {
    let (rows, n) = (k.x.dims()[0] as u64, k.x.dims()[1] as u64);
    if rows == 0 {
        return Ok(());
    }
    let args = QuantizeArgs { out: ctx.at(&k.out)?, scale: ctx.at(&k.scale)?, x: ctx.at(&k.x)?, rows, n };
    let (form, grid) = rows::form(ctx, rows, n, k.x.dtype, &[(args.out, 1), (args.x, k.x.dtype.size())]);
    ctx.launch(QUANTIZE_INT8, Tag::tag_of(k.x.dtype), form, grid, &args)
}

/// `out = x·scale[row]`.
pub(crate) fn dequantize_int8(ctx: &Context<'_>, k: &DequantizeInt8) -> Result<()> {
    let n = k.x.dims()[1] as u64;
    if k.x.numel() == 0 {
        return Ok(());
    }
    let (out, x) = (ctx.at(&k.out)?, ctx.at(&k.x)?);
    let wide = n.is_multiple_of(4) && out.is_multiple_of(4 * k.out.dtype.size()) && x.is_multiple_of(4);
    let (form, pack) = if wide { (WIDE, 4) } else { (ONE, 1) };
    let packs = k.x.numel() as u64 / pack;
    let args = DequantizeArgs { out, scale: ctx.at(&k.scale)?, x, packs, row_packs: n / pack };
    ctx.launch(DEQUANTIZE_INT8, Tag::tag_of(k.out.dtype), form, ctx.grid(packs), &args)
}
