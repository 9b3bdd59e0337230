//! Layer, root-mean-square and batch normalisation.

mod row_grads;

use std::ffi::c_void;

use memcore::backend::Operand;
use memcore::backend::kernel::{BatchNorm, BatchNormGrad, LayerNorm, RmsNorm};
use memcore::{DType, Result};

use crate::arguments::{Bits, arguments};
use crate::kernel::{Kernel, ONE_FORM, ONE_WIDE, ROWS, Tag, kernels};
use crate::launch::{Context, Grid, ONE, THREADS, WIDE};
use crate::rows::{self, PACK_BYTES};
use crate::walk::Divider;
pub(crate) use row_grads::{layer_norm_grad, rms_norm_grad};

arguments! { ARGUMENTS:
    struct RowNormArgs {
        out: *mut c_void,
        x: *const c_void,
        weight: *const c_void,
        bias: *const c_void,
        /// Null for root-mean-square normalisation.
        mean: *mut f32,
        rstd: *mut f32,
        rows: u64,
        n: u64,
        eps: f32,
        unused: u32,
    }

    struct RowNormGradArgs {
        out: *mut c_void,
        grad: *const c_void,
        x: *const c_void,
        weight: *const c_void,
        mean: *const f32,
        rstd: *const f32,
        rows: u64,
        n: u64,
    }

    /// All gradients in one launch. Each block leaves its sums of the parameters' gradients: [blocks, n] each, null if not wanted.
    struct RowNormGradsArgs {
        rows: RowNormGradArgs,
        weight_sums: *mut f32,
        bias_sums: *mut f32,
    }

    /// Gradients of the parameters: sums over rows. A block handles 32 columns or pairs of columns, and 8 rows at a time of one chunk of
    /// rows. Chunks write partial sums, which `column_sums` adds up in order.
    struct ParameterGradArgs {
        grad: *const c_void,
        x: *const c_void,
        mean: *const f32,
        rstd: *const f32,
        /// [chunks, n] each.
        weight_sums: *mut f32,
        bias_sums: *mut f32,
        rows: u64,
        n: u64,
        chunk_rows: u64,
    }

    struct ColumnSumsArgs {
        /// Of weight and bias; null if not wanted.
        out: [*mut c_void; 2],
        partial: [*const f32; 2],
        n: u64,
        chunks: u64,
    }

    /// Results of a chunk of a channel: count, mean and sum of squared deviations; or the sums of a gradient.
    struct ChannelArgs {
        x: *const c_void,
        grad: *const c_void,
        mean: *const f32,
        invstd: *const f32,
        /// [channels, chunks, 3]
        partial: *mut f32,
        channels: u64,
        /// Images, and elements of one image's channel.
        images: u64,
        length: u64,
        chunks: u64,
        /// Steps from image to image, from channel to channel, from position to position.
        x_steps: [u64; 3],
        grad_steps: [u64; 3],
        by_length: Divider,
        unused: u32,
    }

    /// Merges the chunks of each channel, stores the statistics, and writes the factors and summands of the last pass.
    /// The parameters and the running statistics have a type of their own.
    #[derive(Default)]
    struct ChannelFinishArgs {
        partial: *const f32,
        weight: *const c_void,
        bias: *const c_void,
        running_mean: *mut c_void,
        running_var: *mut c_void,
        save_mean: *mut f32,
        save_invstd: *mut f32,
        /// For gradients: the statistics that forward used, and the gradients that are wanted.
        mean: *const f32,
        invstd: *const f32,
        out_weight: *mut c_void,
        out_bias: *mut c_void,
        /// [channels, 3]
        factors: *mut f32,
        channels: u64,
        chunks: u64,
        count: f32,
        momentum: f32,
        eps: f32,
        training: u32,
    }

    struct ChannelApplyArgs {
        out: *mut c_void,
        x: *const c_void,
        grad: *const c_void,
        factors: *const f32,
        mean: *const f32,
        invstd: *const f32,
        packs: u64,
        channels: u64,
        x_steps: [u64; 3],
        grad_steps: [u64; 3],
        by_length: Divider,
        by_channels: Divider,
    }
}

kernels! { KERNELS in Norm:
    ROW_NORM: "row_norm" FLOATS ROWS => RowNormArgs;
    ROW_NORM_LONG: "row_norm_long" HALVES ONE_FORM => RowNormArgs;
    ROW_NORM_GRAD: "row_norm_grad" FLOATS ROWS => RowNormGradArgs;
    ROW_NORM_GRADS: "row_norm_grads" HALVES &["_2048", "_4096"] => RowNormGradsArgs;
    PARAMETER_GRAD: "parameter_grad" FLOATS ONE_WIDE => ParameterGradArgs;
    COLUMN_SUMS: "column_sums" FLOATS ONE_FORM => ColumnSumsArgs;
    CHANNEL_MOMENTS: "channel_moments" FLOATS &["_thread", "_warp", "_block", "_block_wide"] => ChannelArgs;
    CHANNEL_SUMS: "channel_sums" FLOATS &["_thread", "_warp", "_block", "_block_wide"] => ChannelArgs;
    CHANNEL_FINISH: "channel_finish" FLOATS ONE_FORM => ChannelFinishArgs;
    CHANNEL_FINISH_GRAD: "channel_finish_grad" FLOATS ONE_FORM => ChannelFinishArgs;
    CHANNEL_APPLY: "channel_apply" FLOATS ONE_WIDE => ChannelApplyArgs;
    CHANNEL_APPLY_GRAD: "channel_apply_grad" FLOATS ONE_WIDE => ChannelApplyArgs;
}

// ---- rows ----

/// `out = (x − mean)·rstd·weight + bias` over each row.
pub(crate) fn layer_norm(ctx: &Context<'_>, k: &LayerNorm) -> Result<()> {
    let shared = RowNormArgs::new(ctx, [&k.out, &k.x, &k.rstd], &k.weight, k.eps)?;
    let args = RowNormArgs { bias: ctx.at_optional(&k.bias)?, mean: ctx.at(&k.mean)?, ..shared };
    row_norm(ctx, k.x.dtype, &args)
}

/// `out = x·rstd·weight` over each row.
pub(crate) fn rms_norm(ctx: &Context<'_>, k: &RmsNorm) -> Result<()> {
    row_norm(ctx, k.x.dtype, &RowNormArgs::new(ctx, [&k.out, &k.x, &k.rstd], &k.weight, k.eps)?)
}

impl RowNormArgs {
    /// Creates the arguments without a bias and without means.
    fn new(ctx: &Context<'_>, [out, x, rstd]: [&Operand; 3], weight: &Option<Operand>, eps: f64) -> Result<Self> {
        Ok(Self {
            out: ctx.at(out)?,
            x: ctx.at(x)?,
            weight: ctx.at_optional(weight)?,
            bias: 0,
            mean: 0,
            rstd: ctx.at(rstd)?,
            rows: x.dims()[0] as u64,
            n: x.dims()[1] as u64,
            eps: Bits(eps as f32),
            unused: 0,
        })
    }
}

fn row_norm(ctx: &Context<'_>, dtype: DType, a: &RowNormArgs) -> Result<()> {
    if a.rows == 0 {
        return Ok(());
    }
    let size = dtype.size();
    let bases = [(a.out, size), (a.x, size), (a.weight, size), (a.bias, size)];
    if let Some(grid) = rows::long_warps(ctx, a.rows, a.n, dtype, &bases) {
        return ctx.launch(ROW_NORM_LONG, Tag::tag_of(dtype), 0, grid, a);
    }
    let (form, grid) = rows::form(ctx, a.rows, a.n, dtype, &bases);
    ctx.launch(ROW_NORM, Tag::tag_of(dtype), form, grid, a)
}

/// True if both sums of one chunk fit the scratch.
pub(crate) fn supports_row_grad(x: &Operand) -> bool {
    x.dims()[1] <= 1 << 20
}

// ---- channels ----

/// True if the scratch has room for three numbers per channel and chunk, followed by three per channel, and if the
/// indices of a channel have 31 bits.
pub(crate) fn supports_channels(x: &Operand) -> bool {
    x.dims()[1] <= 1 << 18 && x.numel() < 1 << 31
}

/// Minimum elements of a channel per block.
const CHUNK_ELEMENTS: u64 = 4096;

/// Number of elements in 16 bytes.
fn pack(dtype: DType) -> u64 {
    PACK_BYTES / dtype.size()
}

/// `[n, c, l]`, and the division of its channels into chunks.
struct Channels {
    images: u64,
    channels: u64,
    length: u64,
    chunks: u64,
    partial: u64,
    factors: u64,
    /// Strides of the input and of the gradient.
    x_steps: [u64; 3],
    grad_steps: [u64; 3],
}

impl Channels {
    fn new(ctx: &Context<'_>, x: &Operand, grad: &Operand) -> Self {
        let [images, channels, length] = [0, 1, 2].map(|axis| x.dims()[axis] as u64);
        let busy = (u64::from(ctx.properties.processors) * 8).div_ceil(channels.max(1));
        let room = ctx.scratch.bytes / 12 / channels.max(1);
        let chunks = (images * length).div_ceil(CHUNK_ELEMENTS).min(busy).min(room.saturating_sub(1)).clamp(1, 1024);
        let partial = ctx.scratch.address;
        let factors = partial + channels * chunks * 12;
        let steps = |of: &Operand| [0, 1, 2].map(|axis| of.layout.strides()[axis] as u64);
        let (x_steps, grad_steps) = (steps(x), steps(grad));
        Self { images, channels, length, chunks, partial, factors, x_steps, grad_steps }
    }

    fn count(&self) -> f32 {
        (self.images * self.length) as f32
    }

    /// Runs a pass over every element of every channel.
    fn pass(
        &self,
        ctx: &Context<'_>,
        kernel: Kernel<ChannelArgs>,
        dtype: DType,
        [x, grad, mean, invstd]: [u64; 4],
    ) -> Result<()> {
        let args = ChannelArgs {
            x,
            grad,
            mean,
            invstd,
            partial: self.partial,
            channels: self.channels,
            images: self.images,
            length: self.length,
            chunks: self.chunks,
            x_steps: self.x_steps,
            grad_steps: self.grad_steps,
            by_length: Divider::new(self.length as u32),
            unused: 0,
        };
        // One thread, warp or block per channel and chunk; also a block that moves 16 bytes at a time.
        let (form, team) = match self.images * self.length {
            0..=8 => (0, 1),
            9..=1024 => (1, 32),
            _ if self.in_packs(&[x, grad], dtype) => (3, u64::from(THREADS)),
            _ => (2, u64::from(THREADS)),
        };
        let along = ctx.grid(self.channels * team);
        let grid = Grid { blocks: [along.blocks[0], self.chunks as u32, 1], ..along };
        ctx.launch(kernel, Tag::tag_of(dtype), form, grid, &args)
    }

    /// True if elements come in aligned groups of 16 bytes, each within one image: those of the input, the gradient and
    /// all other `bases`.
    fn in_packs(&self, bases: &[u64], dtype: DType) -> bool {
        let pack = pack(dtype);
        let steps = |[image, channel, place]: [u64; 3]| {
            place == 1 && image.is_multiple_of(pack) && channel.is_multiple_of(pack)
        };
        let aligned = bases.iter().all(|base| base.is_multiple_of(PACK_BYTES));
        self.length.is_multiple_of(pack) && aligned && steps(self.x_steps) && steps(self.grad_steps)
    }

    /// The last pass, over one element or 16 bytes of one plane at a time.
    fn apply(
        &self,
        ctx: &Context<'_>,
        kernel: Kernel<ChannelApplyArgs>,
        dtype: DType,
        mut args: ChannelApplyArgs,
    ) -> Result<()> {
        let all = self.images * self.channels * self.length;
        let wide = self.in_packs(&[args.out, args.x, args.grad], dtype);
        let pack = if wide { pack(dtype) } else { 1 };
        args.packs = all / pack;
        args.by_length = Divider::new((self.length / pack) as u32);
        let form = if wide { WIDE } else { ONE };
        ctx.launch(kernel, Tag::tag_of(dtype), form, ctx.grid(args.packs), &args)
    }
}

/// `out = (x − mean)·invstd·weight + bias` over each channel.
pub(crate) fn batch_norm(ctx: &Context<'_>, k: &BatchNorm) -> Result<()> {
    let c = Channels::new(ctx, &k.x, &k.x);
    if c.channels == 0 || (k.x.numel() == 0 && !k.training) {
        return Ok(());
    }
    let dtype = k.x.dtype;
    let (x, out) = (ctx.at(&k.x)?, ctx.at(&k.out)?);
    if k.training {
        c.pass(ctx, CHANNEL_MOMENTS, dtype, [x, 0, 0, 0])?;
    }
    let finish = ChannelFinishArgs {
        bias: ctx.at_optional(&k.bias)?,
        running_mean: ctx.at_optional(&k.running_mean)?,
        running_var: ctx.at_optional(&k.running_var)?,
        save_mean: ctx.at_optional(&k.save_mean)?,
        save_invstd: ctx.at_optional(&k.save_invstd)?,
        momentum: Bits(k.momentum as f32),
        eps: Bits(k.eps as f32),
        ..c.finish_args(ctx.at_optional(&k.weight)?, k.training)
    };
    ctx.launch(CHANNEL_FINISH, Tag::tag_of(k.parameter_dtype()), 0, ctx.grid(c.channels), &finish)?;
    if k.x.numel() == 0 {
        return Ok(());
    }
    let apply = c.apply_args([out, x, 0], [0, 0]);
    c.apply(ctx, CHANNEL_APPLY, dtype, apply)
}

/// Those gradients of [`BatchNorm`] that are present.
pub(crate) fn batch_norm_grad(ctx: &Context<'_>, k: &BatchNormGrad) -> Result<()> {
    let c = Channels::new(ctx, &k.x, &k.grad);
    if c.channels == 0 {
        return Ok(());
    }
    let dtype = k.x.dtype;
    let (x, grad, mean, invstd) = (ctx.at(&k.x)?, ctx.at(&k.grad)?, ctx.at(&k.mean)?, ctx.at(&k.invstd)?);
    c.pass(ctx, CHANNEL_SUMS, dtype, [x, grad, mean, invstd])?;
    let finish = ChannelFinishArgs {
        mean,
        invstd,
        out_weight: ctx.at_optional(&k.out_weight)?,
        out_bias: ctx.at_optional(&k.out_bias)?,
        ..c.finish_args(ctx.at_optional(&k.weight)?, k.training)
    };
    ctx.launch(CHANNEL_FINISH_GRAD, Tag::tag_of(k.parameter_dtype()), 0, ctx.grid(c.channels), &finish)?;
    match &k.out_x {
        Some(out) if out.numel() > 0 => {
            let apply = c.apply_args([ctx.at(out)?, x, grad], [mean, invstd]);
            c.apply(ctx, CHANNEL_APPLY_GRAD, dtype, apply)
        }
        _ => Ok(()),
    }
}

impl Channels {
    /// Arguments of the middle pass without what one of its kernels alone has.
    fn finish_args(&self, weight: u64, training: bool) -> ChannelFinishArgs {
        ChannelFinishArgs {
            partial: self.partial,
            weight,
            factors: self.factors,
            channels: self.channels,
            chunks: self.chunks,
            count: Bits(self.count()),
            training: training.into(),
            ..ChannelFinishArgs::default()
        }
    }

    fn apply_args(&self, [out, x, grad]: [u64; 3], [mean, invstd]: [u64; 2]) -> ChannelApplyArgs {
        ChannelApplyArgs {
            out,
            x,
            grad,
            factors: self.factors,
            mean,
            invstd,
            packs: 0,
            channels: self.channels,
            x_steps: self.x_steps,
            grad_steps: self.grad_steps,
            by_length: Divider::new(1),
            by_channels: Divider::new(self.channels as u32),
        }
    }
}
