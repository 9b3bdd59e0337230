//! Reductions over any axes.

use std::ffi::c_void;

use memcore::backend::kernel::{Reduce, ReduceOp};
use memcore::{Layout, MAX_RANK, Result};

use crate::arguments::arguments;
use crate::kernel::{Tag, kernels};
use crate::launch::{Context, Grid, THREADS};
use crate::walk::{Dims, Walk};

arguments! { ARGUMENTS:
    struct ReduceArgs {
        out: *mut c_void,
        x: *const c_void,
        indices: *mut i64,
        /// [chunks, results]; null with one chunk.
        partial: *mut c_void,
        /// Position of the result, and of the first element of its group.
        results: Walk<2>,
        /// Elements of a group.
        group: Walk<1>,
        chunks: u64,
        chunk_length: u64,
        op: u32,
        /// 1 if the results of 16-bit elements are f32.
        unrounded: u32,
    }
}

kernels! { KERNELS in Reduce:
    REDUCE: "reduce" SUMMED &["_thread", "_warp", "_block", "_chunks"] => ReduceArgs;
    SUM_ROWS: "sum_rows" HALVES &["_sums", "_squares"] => ReduceArgs;
}

/// Bytes of a chunk's result in the scratch: a value and a position.
const PARTIAL_BYTES: u64 = 16;

/// Forms of the kernel, by the threads that compute one result.
const THREAD: usize = 0;
const WARP: usize = 1;
const BLOCK: usize = 2;
const CHUNKS: usize = 3;

/// Integers have no mean. Indices have 31 bits if there is more than one dimension to divide by.
pub(crate) fn supports(k: &Reduce) -> bool {
    use memcore::DType::{I32, I64};
    let known = k.x.dtype.is_float() || (matches!(k.x.dtype, I64 | I32) && k.op != ReduceOp::Mean);
    known && k.x.numel() < 1 << 31
}

/// `out[kept] = op over reduced axes of x`.
pub(crate) fn reduce(ctx: &Context<'_>, k: &Reduce) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    let (kept, group) = layouts(k)?;
    let (results, inner) = (Dims::ordered([&k.out.layout, &kept]), Dims::merged([&group]));
    let length = k.x.numel() as u64 / k.out.numel() as u64;
    let count = k.out.numel() as u64;
    let strides = [results.inner_stride(1), inner.inner_stride(0)];
    // Sums of 16-bit elements side by side are read 16 bytes at a time.
    let wide =
        k.x.dtype.is_half() && strides[1] == 1 && matches!(k.op, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::SumSquares);
    let plan = Plan::new(ctx, count, length, strides, wide);
    let mut args = ReduceArgs {
        out: ctx.at(&k.out)?,
        x: ctx.at(&k.x)?,
        indices: ctx.at_optional(&k.indices)?,
        partial: if plan.chunks > 1 { ctx.scratch.address } else { 0 },
        results: results.walk(1, count),
        group: inner.walk(1, length),
        chunks: plan.chunks,
        chunk_length: length.div_ceil(plan.chunks).max(1),
        op: match k.op {
            ReduceOp::Sum => 0,
            ReduceOp::Mean => 1,
            ReduceOp::SumSquares => 2,
            ReduceOp::Max => 3,
            ReduceOp::Min => 4,
        },
        unrounded: (k.out.dtype != k.x.dtype).into(),
    };
    let tag = Tag::tag_of(k.x.dtype);
    if wide && plan.form == WARP && plan.chunks == 1 && inner.is_one() && begin_in_packs(args.x, &kept) {
        let squares = usize::from(k.op == ReduceOp::SumSquares);
        return ctx.launch(SUM_ROWS, tag, squares, plan.grid(ctx, count), &args);
    }
    // With chunks, the mean is computed when they are merged.
    ctx.launch(REDUCE, tag, plan.form, plan.grid(ctx, count), &args)?;
    if plan.chunks > 1 {
        args.chunk_length = 0;
        ctx.launch(REDUCE, tag, CHUNKS, ctx.grid(count), &args)?;
    }
    Ok(())
}

/// True if every group of 16-bit elements begins at a multiple of 16 bytes.
fn begin_in_packs(x: u64, kept: &Layout) -> bool {
    const PACK: usize = 8;
    let begins = |(size, stride): (&usize, &usize)| *size == 1 || stride.is_multiple_of(PACK);
    x.is_multiple_of(16) && kept.dims().iter().zip(kept.strides()).all(begins)
}

/// Two layouts of `x`: with size 1 in the reduced axes, the beginnings of the groups; with size 1 in the others, one
/// group.
fn layouts(k: &Reduce) -> Result<(Layout, Layout)> {
    let (dims, strides) = (k.x.dims(), k.x.layout.strides());
    let (mut kept, mut group) = ([1; MAX_RANK], [1; MAX_RANK]);
    for (axis, &size) in dims.iter().enumerate() {
        let sizes = if k.reduces(axis) { &mut group } else { &mut kept };
        sizes[axis] = size;
    }
    Ok((Layout::strided(&kept[..dims.len()], strides)?, Layout::strided(&group[..dims.len()], strides)?))
}

/// The threads that compute one result, and the number of chunks of a group.
struct Plan {
    form: usize,
    chunks: u64,
}

impl Plan {
    fn new(ctx: &Context<'_>, count: u64, length: u64, [across, along]: [u64; 2], wide: bool) -> Self {
        /// Longer groups are cut so that no thread adds up more; shorter ones only to keep the device busy.
        const LONGEST_SHARE: u64 = 4096;
        const SHORTEST_SHARE: u64 = 32;
        /// Results longer than this get a block each; in packs of 16 bytes, if there are warps enough for every processor, longer ones do.
        const WARP_LENGTH: u64 = 1024;
        const WARP_LENGTH_IN_PACKS: u64 = 8192;
        const WARPS_PER_PROCESSOR: u64 = 16;
        // Neighbouring threads read adjacent elements: those of other results, or of the same one.
        let columns = across == 1 && along != 1;
        let many = count >= u64::from(ctx.properties.processors) * WARPS_PER_PROCESSOR;
        let most = if wide && many { WARP_LENGTH_IN_PACKS } else { WARP_LENGTH };
        let (form, team) = if columns || length < 16 {
            (THREAD, 1)
        } else if length <= most {
            (WARP, 32)
        } else {
            (BLOCK, u64::from(THREADS))
        };
        let busy = (u64::from(ctx.properties.processors) * 1024).div_ceil(count * team);
        let wanted = length.div_ceil(team * LONGEST_SHARE).max(busy.min(length / (team * SHORTEST_SHARE)));
        let room = ctx.scratch.bytes / PARTIAL_BYTES / count;
        Self { form, chunks: wanted.min(room).max(1) }
    }

    fn grid(&self, ctx: &Context<'_>, count: u64) -> Grid {
        let items = count * self.chunks;
        match self.form {
            THREAD => ctx.grid(items),
            WARP => ctx.grid(items * 32),
            _ => ctx.grid(items * u64::from(THREADS)),
        }
    }
}
