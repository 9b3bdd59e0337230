//! Fused attention, its gradients, and rotary embedding.

mod library;

use std::ffi::c_void;

use memcore::backend::Operand;
use memcore::backend::kernel::{Attention, AttentionGrad, Rope};
use memcore::{DType, Result};

use crate::arguments::{Bits, arguments};
use crate::by_cudnn;
use crate::gemm::has_tensor_cores;
use crate::kernel::{Family, Kernel, ONE_FORM, Tag, kernels};
use crate::launch::{Context, Grid};
pub(crate) use library::workspace_bytes;

arguments! { ARGUMENTS:
    /// A matrix per batch and head; its columns are adjacent.
    #[derive(Default)]
    struct Heads {
        base: *mut c_void,
        batch: i64,
        head: i64,
        row: i64,
    }

    struct AttentionArgs {
        q: Heads,
        k: Heads,
        v: Heads,
        out: Heads,
        /// Gradients: of the result (incoming), and those that are wanted.
        grad: Heads,
        dq: Heads,
        dk: Heads,
        dv: Heads,
        mask: *const c_void,
        mask_strides: [i64; 4],
        /// Gradient of the mask at each score; may be null.
        dmask: *mut c_void,
        dmask_strides: [i64; 4],
        /// [batch, head, query]; may be null, else forward writes it
        logsumexp: *mut f32,
        delta: *mut f32,
        batches: u32,
        heads: u32,
        key_heads: u32,
        queries: u32,
        keys: u32,
        depth: u32,
        value_depth: u32,
        causal: u32,
        scale: f32,
        unused: u32,
    }

    struct RopeArgs {
        out: *mut c_void,
        x: *const c_void,
        cos: *const f32,
        sin: *const f32,
        /// Batch, position, head, element.
        out_strides: [i64; 4],
        x_strides: [i64; 4],
        pairs: u64,
        positions: u32,
        heads: u32,
        half: u32,
        sign: f32,
    }
}

kernels! { KERNELS in Attention:
    ATTENTION: "attention" FLOATS &["_64", "_128", "_256"] => AttentionArgs;
    ATTENTION_HIDDEN: "attention_hidden" HALVES ONE_FORM => AttentionArgs;
    ATTENTION_DENOMINATORS: "attention_denominators" ONLY ONE_FORM => AttentionArgs;
    ATTENTION_DELTA: "attention_delta" FLOATS ONE_FORM => AttentionArgs;
    ATTENTION_DQ: "attention_dq" FLOATS &["_64", "_128", "_256"] => AttentionArgs;
    ATTENTION_DKV: "attention_dkv" FLOATS &["_64", "_128", "_256"] => AttentionArgs;
    ROPE: "rope" FLOATS ONE_FORM => RopeArgs;
}

kernels! { TENSOR_KERNELS in AttentionTensor:
    ATTENTION_TENSOR: "attention_tensor" HALVES &["_64", "_128"] => AttentionArgs;
    ATTENTION_DQ_TENSOR: "attention_dq_tensor" HALVES &["_64", "_128"] => AttentionArgs;
    ATTENTION_DKV_TENSOR: "attention_dkv_tensor" HALVES &["_64", "_128"] => AttentionArgs;
}

kernels! { FLOAT_KERNELS in AttentionFloat:
    ATTENTION_FLOAT: "attention_tensor_float" ONLY &["_64", "_128"] => AttentionArgs;
    ATTENTION_DQ_FLOAT: "attention_dq_tensor_float" ONLY &["_64", "_128"] => AttentionArgs;
    ATTENTION_DKV_FLOAT: "attention_dkv_tensor_float" ONLY &["_64", "_128"] => AttentionArgs;
}

/// Maximum number of columns of a head in the kernels.
const MAX_COLUMNS: usize = 256;

/// Shared memory per block that every device has.
const SHARED_BYTES: u32 = 48 << 10;

/// True if the heads are small enough and the rows can be counted.
pub(crate) fn supports(q: &Operand, k: &Operand, v: &Operand) -> bool {
    let columns = q.dims()[3].max(v.dims()[3]);
    let rows = |x: &Operand| x.dims()[..3].iter().product::<usize>();
    columns <= MAX_COLUMNS && rows(q) < 1 << 31 && rows(k) < 1 << 31
}

fn strides(operand: &Operand) -> [i64; 4] {
    std::array::from_fn(|axis| operand.layout.strides()[axis] as i64)
}

fn heads(ctx: &Context<'_>, operand: &Operand) -> Result<Heads> {
    let [batch, head, row, _] = strides(operand);
    Ok(Heads { base: ctx.at(operand)?, batch, head, row })
}

/// Arguments that forward and backward share.
fn common(
    ctx: &Context<'_>,
    [q, k, v, out]: [&Operand; 4],
    mask: &Option<Operand>,
    logsumexp: &Option<Operand>,
    scale: f64,
    causal: bool,
) -> Result<AttentionArgs> {
    let (qd, kd) = (q.dims(), k.dims());
    let none = Heads::default();
    Ok(AttentionArgs {
        q: heads(ctx, q)?,
        k: heads(ctx, k)?,
        v: heads(ctx, v)?,
        out: heads(ctx, out)?,
        grad: none,
        dq: none,
        dk: none,
        dv: none,
        mask: ctx.at_optional(mask)?,
        mask_strides: mask.as_ref().map_or([0; 4], strides),
        dmask: 0,
        dmask_strides: [0; 4],
        logsumexp: ctx.at_optional(logsumexp)?,
        delta: 0,
        batches: qd[0] as u32,
        heads: qd[1] as u32,
        key_heads: kd[1] as u32,
        queries: qd[2] as u32,
        keys: kd[2] as u32,
        depth: qd[3] as u32,
        value_depth: v.dims()[3] as u32,
        causal: causal.into(),
        scale: Bits(scale as f32),
        unused: 0,
    })
}

/// Maximum number of columns of a head in the kernels on tensor cores.
const MAX_TENSOR_COLUMNS: u32 = 128;

/// True if tensor cores are used: they take 16-bit types, and compute no gradient of a mask.
fn by_tensor_cores(ctx: &Context<'_>, dtype: DType, args: &AttentionArgs) -> bool {
    let fits = args.depth.max(args.value_depth) <= MAX_TENSOR_COLUMNS && args.dmask == 0;
    dtype.is_half() && has_tensor_cores(ctx.properties.capability, dtype) && fits
}

/// See [`by_parts`].
const FEW_ROWS: u32 = 32;

/// True if tensor cores compute float32, each product by three of TF32. A block has 64 queries: of fewer than half of them the
/// kernels on ordinary cores have less to do, which give a warp four or two. So it is with keys, in the gradients of keys and values.
fn by_parts(ctx: &Context<'_>, dtype: DType, args: &AttentionArgs) -> bool {
    let fits = args.depth.max(args.value_depth) <= MAX_TENSOR_COLUMNS && args.queries >= FEW_ROWS;
    dtype == DType::F32 && has_tensor_cores(ctx.properties.capability, dtype) && fits
}

/// Threads and rows of a block in `attention_tensor.cu`, by form: forward, then backward; and in `attention_float.cu`.
const TENSOR_FORWARD: [(u32, u32); 2] = [(128, 128), (128, 64)];
const FLOAT_FORWARD: [(u32, u32); 2] = [(128, 64), (128, 64)];
const FLOAT_BACKWARD: [(u32, u32); 2] = [(128, 64), (128, 64)];

/// Bytes of shared memory that launches give a block in `attention_float.cu`, by form. Every device of compute capability 8.0 and more has 99 KiB.
const FLOAT_FORWARD_BYTES: [u32; 2] = [0, 67_584];
const FLOAT_BACKWARD_BYTES: [u32; 2] = [52_480, 84_608];
const TENSOR_BACKWARD: [(u32, u32); 2] = [(128, 64), (64, 32)];

/// Returns a grid for `rows` rows of each of `matrices` matrices.
fn tensor_grid((threads, block_rows): (u32, u32), rows: u32, matrices: u32) -> Grid {
    Grid { threads, ..Grid::over_blocks(u64::from(rows.div_ceil(block_rows)) * u64::from(matrices)) }
}

/// Lanes that share a row of `delta`, as in the kernels.
const DELTA_LANES: u64 = 8;

/// Rows of a warp on ordinary cores, by form: forward, then backward.
const FORWARD_ROWS: [u32; 3] = [4, 4, 2];
const BACKWARD_ROWS: [u32; 3] = [4, 2, 1];

/// Form by the number of columns: up to 64, 128, 256.
fn form(args: &AttentionArgs) -> usize {
    match args.depth.max(args.value_depth) {
        0..=64 => 0,
        65..=128 => 1,
        _ => 2,
    }
}

/// Floats of a row, rounded up to a multiple of four.
fn fours(depth: u32) -> u32 {
    depth.next_multiple_of(4)
}

/// Returns a grid of blocks with up to 8 warps, as far as there are rows for them and shared memory has room. Shared
/// memory holds a tile of 32 rows and, for each row of a warp, `row_floats` and the row's weights of a tile.
fn grid(args: &AttentionArgs, rows: u32, matrices: u32, warp_rows: u32, row_floats: u32) -> Grid {
    const TILE: u32 = 32;
    let columns = fours(args.depth.max(args.value_depth));
    let lead = if columns / 4 % 2 == 1 { columns } else { columns + 4 };
    let (tile_bytes, warp_bytes) = (TILE * lead * 4, warp_rows * (row_floats + TILE) * 4);
    let warps = rows.div_ceil(warp_rows).min(8).min((SHARED_BYTES - tile_bytes) / warp_bytes).max(1);
    let blocks = u64::from(rows.div_ceil(warps * warp_rows)) * u64::from(matrices);
    Grid { threads: warps * 32, shared_bytes: tile_bytes + warps * warp_bytes, ..Grid::over_blocks(blocks) }
}

/// `out = softmax(scale·q @ kᵀ + mask) @ v`, by the library or the own kernels.
pub(crate) fn attention(ctx: &Context<'_>, k: &Attention) -> Result<()> {
    let own = || own_attention(ctx, k);
    let Some(asked) = library::forward(ctx, k)? else { return own() };
    let end = || {
        if k.mask.is_some() { rows_that_see_nothing(ctx, k, asked.statistics) } else { Ok(()) }
    };
    let done = by_cudnn::computes(ctx, Family::AttentionTensor, asked.call, [&|| Ok(()), &end], &own)?;
    if done { Ok(()) } else { own() }
}

/// Rows whose keys are all hidden, or have the lowest numbers for a mask, get what the own kernels give them: of these the library may make anything.
fn rows_that_see_nothing(ctx: &Context<'_>, k: &Attention, statistics: u64) -> Result<()> {
    let args = common(ctx, [&k.q, &k.k, &k.v, &k.out], &k.mask, &None, k.scale, k.causal)?;
    let args = AttentionArgs { logsumexp: statistics, ..args };
    let rows = u64::from(args.batches) * u64::from(args.heads) * u64::from(args.queries);
    ctx.launch(ATTENTION_HIDDEN, Tag::tag_of(k.q.dtype), 0, ctx.grid(rows * 32), &args)
}

fn own_attention(ctx: &Context<'_>, k: &Attention) -> Result<()> {
    let args = common(ctx, [&k.q, &k.k, &k.v, &k.out], &k.mask, &k.logsumexp, k.scale, k.causal)?;
    if args.batches * args.heads * args.queries == 0 {
        return Ok(());
    }
    let (tag, form, matrices) = (Tag::tag_of(k.q.dtype), form(&args), args.batches * args.heads);
    if by_tensor_cores(ctx, k.q.dtype, &args) {
        let grid = tensor_grid(TENSOR_FORWARD[form], args.queries, matrices);
        return ctx.launch(ATTENTION_TENSOR, tag, form, grid, &args);
    }
    if by_parts(ctx, k.q.dtype, &args) {
        let grid = tensor_grid(FLOAT_FORWARD[form], args.queries, matrices);
        let grid = Grid { shared_bytes: FLOAT_FORWARD_BYTES[form], ..grid };
        return ctx.launch(ATTENTION_FLOAT, Tag::Only, form, grid, &args);
    }
    let grid = grid(&args, args.queries, matrices, FORWARD_ROWS[form], fours(args.depth));
    ctx.launch(ATTENTION, tag, form, grid, &args)
}

/// The gradients of [`Attention`], by the library or the own kernels.
pub(crate) fn attention_grad(ctx: &Context<'_>, k: &AttentionGrad) -> Result<()> {
    let own = || own_attention_grad(ctx, k);
    let Some(asked) = library::backward(ctx, k)? else { return own() };
    let begin = || {
        if k.mask.is_some() { denominators(ctx, k, asked.statistics) } else { Ok(()) }
    };
    let done = by_cudnn::computes(ctx, Family::AttentionTensor, asked.call, [&begin, &|| Ok(())], &own)?;
    if done { Ok(()) } else { own() }
}

/// Writes the statistics as the library takes them: infinite for rows whose gradients are zero.
fn denominators(ctx: &Context<'_>, k: &AttentionGrad, to: u64) -> Result<()> {
    let args = common(ctx, [&k.q, &k.k, &k.v, &k.out], &None, &Some(k.logsumexp), k.scale, k.causal)?;
    let args = AttentionArgs { delta: to, ..args };
    ctx.launch(ATTENTION_DENOMINATORS, Tag::Only, 0, ctx.grid(k.logsumexp.numel() as u64), &args)
}

fn own_attention_grad(ctx: &Context<'_>, k: &AttentionGrad) -> Result<()> {
    let args = AttentionArgs {
        grad: heads(ctx, &k.grad)?,
        dq: heads(ctx, &k.dq)?,
        dk: heads(ctx, &k.dk)?,
        dv: heads(ctx, &k.dv)?,
        delta: ctx.at(&k.delta)?,
        dmask: ctx.at_optional(&k.dmask)?,
        dmask_strides: k.dmask.as_ref().map_or([0; 4], strides),
        ..common(ctx, [&k.q, &k.k, &k.v, &k.out], &k.mask, &Some(k.logsumexp), k.scale, k.causal)?
    };
    let (tag, form) = (Tag::tag_of(k.q.dtype), form(&args));
    let [dq, dkv] = backward_by(ctx, k.q.dtype, &args);
    if k.logsumexp.numel() > 0 {
        let lanes = k.logsumexp.numel() as u64 * DELTA_LANES;
        ctx.launch(ATTENTION_DELTA, tag, 0, ctx.grid(lanes), &args)?;
        ctx.launch(dq.0, dq.1, form, backward_grid(dq.2, &args, form, args.queries, args.heads), &args)?;
    }
    if args.batches * args.keys > 0 {
        ctx.launch(dkv.0, dkv.1, form, backward_grid(dkv.2, &args, form, args.keys, args.key_heads), &args)?;
    }
    Ok(())
}

/// What computes gradients: ordinary cores, or tensor cores from 16 bits or from the parts of a float.
#[derive(Clone, Copy)]
enum Cores {
    Ordinary,
    Tensor,
    TensorByParts,
}

/// The kernels of the gradients of queries, and of keys and values.
fn backward_by(ctx: &Context<'_>, dtype: DType, args: &AttentionArgs) -> [(Kernel<AttentionArgs>, Tag, Cores); 2] {
    let tag = Tag::tag_of(dtype);
    if by_tensor_cores(ctx, dtype, args) {
        [ATTENTION_DQ_TENSOR, ATTENTION_DKV_TENSOR].map(|kernel| (kernel, tag, Cores::Tensor))
    } else if by_parts(ctx, dtype, args) && args.keys >= FEW_ROWS && args.dmask == 0 {
        [ATTENTION_DQ_FLOAT, ATTENTION_DKV_FLOAT].map(|kernel| (kernel, Tag::Only, Cores::TensorByParts))
    } else {
        [ATTENTION_DQ, ATTENTION_DKV].map(|kernel| (kernel, tag, Cores::Ordinary))
    }
}

/// The grid for `rows` rows of each of `heads` heads of each batch.
fn backward_grid(cores: Cores, args: &AttentionArgs, form: usize, rows: u32, heads: u32) -> Grid {
    let matrices = args.batches * heads;
    match cores {
        Cores::Ordinary => {
            let floats = fours(args.depth) + fours(args.value_depth);
            grid(args, rows, matrices, BACKWARD_ROWS[form], floats)
        }
        Cores::Tensor => tensor_grid(TENSOR_BACKWARD[form], rows, matrices),
        Cores::TensorByParts => {
            let shared_bytes = FLOAT_BACKWARD_BYTES[form];
            Grid { shared_bytes, ..tensor_grid(FLOAT_BACKWARD[form], rows, matrices) }
        }
    }
}

/// Rotary position embedding by half-rotation.
pub(crate) fn rope(ctx: &Context<'_>, k: &Rope) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    let d = k.x.dims();
    let args = RopeArgs {
        out: ctx.at(&k.out)?,
        x: ctx.at(&k.x)?,
        cos: ctx.at(&k.cos)?,
        sin: ctx.at(&k.sin)?,
        out_strides: strides(&k.out),
        x_strides: strides(&k.x),
        pairs: k.out.numel() as u64 / 2,
        positions: d[1] as u32,
        heads: d[2] as u32,
        half: (d[3] / 2) as u32,
        sign: Bits(if k.inverse { -1.0 } else { 1.0 }),
    };
    ctx.launch(ROPE, Tag::tag_of(k.x.dtype), 0, ctx.grid(args.pairs), &args)
}
