//! Kernels of batch normalisation that both operators share: their operands, and the memory that PyTorch's own kernels allocate.

use crate::array::Array;
use crate::autograd::{Grads, Needs, Tensor};
use crate::backend::kernel::{BatchNorm, BatchNormGrad, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::Result;

/// Options of [`batch_norm`](super::batch).
#[derive(Clone, Copy, Debug)]
pub struct BatchNormOptions {
    /// True if the batch's own statistics are used, and the running ones updated. Otherwise the running ones are used.
    pub training: bool,
    /// Weight of the batch in the running statistics.
    pub momentum: f64,
    /// Number that is added to the variance.
    pub eps: f64,
}

impl Default for BatchNormOptions {
    /// Training, with PyTorch's defaults.
    fn default() -> Self {
        Self { training: true, momentum: 0.1, eps: 1e-5 }
    }
}

/// Statistics over all batches so far, updated in place; buffers of a module, in the type of its parameters.
#[derive(Clone, Copy)]
pub struct RunningStats<'a> {
    /// `[c]`
    pub mean: &'a Array,
    /// `[c]`, unbiased.
    pub var: &'a Array,
}

/// Fills `y` with normalised `x`: by the statistics of `batch`, which are filled too, or by the `running` ones. In training the running ones
/// are updated.
pub(in crate::ops) fn normalise(
    x: &Array,
    parameters: [Option<&Tensor>; 2],
    running: Option<RunningStats<'_>>,
    options: BatchNormOptions,
    y: &Array,
    batch: Option<[&Array; 2]>,
) -> Result<()> {
    if let (true, Some(running)) = (options.training, running) {
        running.mean.storage().bump_version();
        running.var.storage().bump_version();
    }
    let planes = Planes::for_array(y);
    let [weight, bias] = parameters.map(|parameter| parameter.map(|tensor| tensor.array().operand()));
    x.device().launch(BatchNorm {
        training: options.training,
        momentum: options.momentum,
        eps: options.eps,
        x: planes.view(x)?.operand(),
        weight,
        bias,
        running_mean: running.map(|r| r.mean.operand()),
        running_var: running.map(|r| r.var.operand()),
        out: planes.view(y)?.operand(),
        save_mean: batch.map(|[mean, _]| mean.operand()),
        save_invstd: batch.map(|[_, invstd]| invstd.operand()),
    })
}

/// Writes `1/√(var + eps)` into `out`.
pub(in crate::ops) fn invert_deviation(var: &Array, eps: f64, out: &Array) -> Result<()> {
    out.copy_(var)?;
    out.unary_(UnaryOp::Affine { mul: 1.0, add: eps })?;
    out.unary_(UnaryOp::Rsqrt)
}

/// Layout of an array without gaps in memory: `[before, channels, after]`, whatever the order of its dimensions. Only the channels are
/// distinguished.
struct Planes {
    axes: smallvec::SmallVec<[usize; 6]>,
    dims: [usize; 3],
}

impl Planes {
    fn for_array(x: &Array) -> Self {
        let axes = x.memory_order();
        let at = axes.iter().position(|&axis| axis == 1).unwrap_or(0);
        let product = |axes: &[usize]| axes.iter().map(|&axis| x.dims()[axis]).product();
        let dims = [product(&axes[..at]), x.dims()[1], product(&axes[at + 1..])];
        Self { axes, dims }
    }

    /// Returns `x` contiguous in this order, copied if it is laid out otherwise.
    fn view(&self, x: &Array) -> Result<Array> {
        x.permute(&self.axes)?.contiguous()?.view(&self.dims)
    }

    /// Returns `x` with its own strides, copied if its dimensions cannot be joined as these are.
    fn strided(&self, x: &Array) -> Result<Array> {
        let ordered = x.permute(&self.axes)?;
        if x.device().profile().reads_channels_last() && ordered.layout().viewed(&self.dims).is_none() {
            // PyTorch's kernel reads any strides.
            return ordered.as_row_major()?.view(&self.dims);
        }
        ordered.reshape(&self.dims)
    }
}

/// Memory that backward allocates, in the order and the layouts of PyTorch's kernels.
pub(in crate::ops) struct Parts {
    pub(in crate::ops) x: Option<Array>,
    pub(in crate::ops) parameters: [Option<Array>; 2],
    /// Sums of the gradient and of its product with the input, which the fused kernel does not need.
    sums: Option<[Array; 2]>,
    /// Gradients of frozen parameters, which PyTorch's kernel for channels that lie innermost makes all the same.
    unwanted: [Option<Array>; 2],
}

/// Values from which the gradients are computed.
pub(in crate::ops) struct Given<'a> {
    pub(in crate::ops) grad: &'a Array,
    pub(in crate::ops) x: &'a Array,
    pub(in crate::ops) mean: &'a Array,
    pub(in crate::ops) invstd: &'a Array,
    pub(in crate::ops) weight: Option<&'a Array>,
    pub(in crate::ops) training: bool,
}

impl Given<'_> {
    /// Fills the gradients that exist: of the input and of the parameters.
    pub(in crate::ops) fn fill(&self, out: Option<&Array>, parameters: [Option<&Array>; 2]) -> Result<()> {
        if out.is_none() && parameters.iter().all(Option::is_none) {
            return Ok(());
        }
        let planes = Planes::for_array(out.unwrap_or(self.x));
        let (ordered_grad, ordered_x) = (planes.strided(self.grad)?, planes.strided(self.x)?);
        self.x.device().launch(BatchNormGrad {
            training: self.training,
            grad: ordered_grad.operand(),
            x: ordered_x.operand(),
            mean: self.mean.operand(),
            invstd: self.invstd.operand(),
            weight: self.weight.map(Array::operand),
            out_x: out.map(|out| planes.view(out)).transpose()?.as_ref().map(Array::operand),
            out_weight: parameters[0].map(Array::operand),
            out_bias: parameters[1].map(Array::operand),
        })
    }
}

impl Parts {
    /// Frees the sums and the gradients of frozen parameters, which are not results.
    pub(in crate::ops) fn release_sums(&mut self) {
        if let Some([gradients, products]) = self.sums.take() {
            drop(products);
            drop(gradients);
        }
        self.unwanted = [None, None];
    }

    /// Returns the gradients of the inputs, in the order of `slots`.
    pub(in crate::ops) fn into_grads(self, slots: [Option<usize>; 2]) -> Grads {
        let there = slots.into_iter().zip(self.parameters).filter(|(slot, _)| slot.is_some());
        std::iter::once(self.x).chain(there.map(|(_, parameter)| parameter)).collect()
    }
}

/// Required gradients, and how they are computed.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Plan {
    /// Places of weight and bias among the inputs.
    pub(in crate::ops) slots: [Option<usize>; 2],
    pub(in crate::ops) training: bool,
    /// Type of the parameters, and so of their gradients.
    pub(in crate::ops) parameter: DType,
}

impl Plan {
    fn wants(&self, parameter: usize, needs: Needs<'_>) -> bool {
        self.slots[parameter].is_some_and(|slot| needs.input(slot))
    }

    /// True if anything has to be summed.
    fn reduces(&self, needs: Needs<'_>) -> bool {
        self.training || (0..2).any(|parameter| self.wants(parameter, needs))
    }

    /// True if one kernel makes all gradients: unless the input's gradient is not required, or the channels are innermost.
    pub(in crate::ops) fn is_fused(&self, x: &Array, needs: Needs<'_>) -> bool {
        self.reduces(needs) && needs.input(0) && !has_channels_last(x)
    }

    /// Allocates the gradients. One fused kernel makes the input's gradient in row-major order. Otherwise there is a pass for the sums and a pass for
    /// the input, whose gradient has the input's layout in training.
    pub(in crate::ops) fn parts(&self, [grad, x]: [&Array; 2], statistic: &Array, needs: Needs<'_>) -> Result<Parts> {
        let side_by_side = has_channels_last(x);
        let fused = self.is_fused(x, needs);
        let input = || match needs.input(0) {
            true if side_by_side && self.training => x.empty_alike().map(Some),
            true => x.empty_like().map(Some),
            false => Ok(None),
        };
        let torch = x.device().profile().torch_temporaries;
        let early = if fused { input()? } else { None };
        let sums = if torch && self.reduces(needs) && side_by_side {
            Some([statistic.empty_like()?, statistic.empty_like()?])
        } else {
            None
        };
        // `batch_norm_backward_reduce_cuda_channels_last_template` asks whether there is a weight, not whose gradient is wanted.
        let makes_both = sums.is_some() && self.slots[0].is_some();
        let (mut parameters, mut unwanted) = ([None, None], [None, None]);
        for i in 0..2 {
            let wanted = self.wants(i, needs);
            if wanted || makes_both {
                let gradient = Array::empty(x.device(), &[x.dims()[1]], self.parameter)?;
                let kept = if wanted { &mut parameters } else { &mut unwanted };
                kept[i] = Some(gradient);
            }
        }
        if self.reduces(needs) && side_by_side && has_channels_last(grad) {
            drop(staged(x, 2)?);
        }
        Ok(Parts { x: if fused { early } else { input()? }, parameters, sums, unwanted })
    }
}

/// Allocates what PyTorch's kernel for channels that lie innermost holds while it sums over so many positions that several blocks share a channel:
/// `parts` partial results of each channel and block, and a counter for each group of channels. `None` for fewer positions.
pub(in crate::ops) fn staged(x: &Array, parts: usize) -> Result<Option<(Array, Array)>> {
    let channels = x.dims()[1];
    if !x.device().profile().torch_temporaries || x.numel() == 0 || !has_channels_last(x) {
        return Ok(None);
    }
    let power = |n: usize| 1 << n.max(1).ilog2();
    let positions = x.numel() / channels;
    let down = power(positions.div_ceil(POSITIONS_AT_ONCE)).min(BLOCK / power(channels).min(TILE));
    let across = power(channels).min(BLOCK / down);
    let blocks = positions.div_ceil(down * POSITIONS_PER_THREAD).min(MAX_BLOCKS);
    if blocks < MIN_BLOCKS {
        return Ok(None);
    }
    let partial = Array::empty(x.device(), &[parts * channels * blocks], x.dtype().accumulator())?;
    let counters = context::within("zeros", || Array::empty(x.device(), &[channels.div_ceil(across)], DType::I32))?;
    Ok(Some((partial, counters)))
}

/// `MAX_BLOCK_SIZE`, `OPTIMAL_TILE_W`, `ELEMENTS_PER_ITER`, `ELEMENTS_PER_THREAD`, `MAX_H_BLOCK` of PyTorch's `Normalization.cuh`, and the fewest
/// blocks that share a channel.
const BLOCK: usize = 512;
const TILE: usize = 32;
const POSITIONS_AT_ONCE: usize = 4;
const POSITIONS_PER_THREAD: usize = 16;
const MAX_BLOCKS: usize = 128;
const MIN_BLOCKS: usize = 8;

/// True if the channels of each position are contiguous: PyTorch's channels-last formats, and a contiguous input of one position.
pub(in crate::ops) fn has_channels_last(x: &Array) -> bool {
    if x.layout().is_contiguous() && x.layout().strides()[1] == 1 {
        return true;
    }
    let mut axes: smallvec::SmallVec<[usize; 6]> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    axes.push(1);
    matches!(x.rank(), 4 | 5) && x.permute(&axes).is_ok_and(|x| x.layout().is_contiguous())
}
