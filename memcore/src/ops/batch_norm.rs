//! Normalisation over channels.

use super::norm::present;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BatchNorm, BatchNormGrad, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// How [`batch_norm`] computes.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormOptions {
    /// Whether the batch's own statistics are used, and the running ones updated; otherwise the running ones are used.
    pub training: bool,
    /// Weight of the batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

/// Statistics over all batches so far, updated in place; buffers of a module, in the type of its parameters.
#[derive(Clone, Copy)]
pub struct RunningStats<'a> {
    /// `[c]`
    pub mean: &'a Array,
    /// `[c]`, unbiased.
    pub var: &'a Array,
}

/// Each channel (dimension 1) of `x` `[n, c, ..]` normalised over everything else, times weight, plus bias (`[c]` each).
///
/// The mean and reciprocal deviation that it used are saved with the input and the weight (4 bytes per channel each, in evaluation too), and in
/// training the running statistics are updated in place. The result is laid out as `x`, without gaps. Weight, bias and statistics may be f32
/// beside a 16-bit input, which no operator casts.
/// As PyTorch without cuDNN: with it, PyTorch keeps the same bytes.
///
/// # Errors
/// [`Error::Shape`] when the shapes do not fit; [`Error::Invalid`] for evaluation without running statistics; those of the device.
pub fn batch_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running: Option<RunningStats<'_>>,
    options: BatchNormOptions,
) -> Result<Tensor> {
    check("batch_norm", x, &[weight, bias])?;
    if !options.training && running.is_none() {
        return Err(Error::invalid("batch_norm", "evaluation needs running statistics"));
    }
    let _outer = context::op("batch_norm");
    let op = context::op("_batch_norm_impl_index>native_batch_norm");
    let y = Array::empty_for(x.device(), x.dims(), &[x.array().layout()], x.dtype())?;
    let statistic = || Array::empty(x.device(), &[x.dims()[1]], x.dtype().accumulator());
    let (mean, invstd) = (statistic()?, statistic()?);
    let batch = options.training.then_some((&mean, &invstd));
    if let (true, Some(running)) = (options.training, running) {
        running.mean.storage().bump_version();
        running.var.storage().bump_version();
    }
    let planes = Planes::of(&y);
    x.device().launch(BatchNorm {
        training: options.training,
        momentum: options.momentum,
        eps: options.eps,
        x: planes.view(x.array())?.operand(),
        weight: weight.map(|w| w.array().operand()),
        bias: bias.map(|b| b.array().operand()),
        running_mean: running.map(|r| r.mean.operand()),
        running_var: running.map(|r| r.var.operand()),
        out: planes.view(&y)?.operand(),
        save_mean: batch.map(|(mean, _)| mean.operand()),
        save_invstd: batch.map(|(_, invstd)| invstd.operand()),
    })?;
    let (inputs, slots) = present(x, &[weight, bias]);
    let parameter = weight.or(bias).map_or(x.dtype(), Tensor::dtype);
    let y = record(y, &inputs, |saved| {
        if let (false, Some(running)) = (options.training, running) {
            mean.copy_(running.mean)?;
            invstd.copy_(running.var)?;
            invstd.unary_(UnaryOp::Affine { mul: 1.0, add: options.eps })?;
            invstd.unary_(UnaryOp::Rsqrt)?;
        }
        saved.save("input", x.array())?;
        saved.save("save_mean", &mean)?;
        saved.save("save_invstd", &invstd)?;
        if let Some(weight) = weight {
            saved.save("weight", weight.array())?;
        }
        Ok(Box::new(BatchNormBackward { slots, training: options.training, parameter }))
    });
    // A recomputation that stops while they are saved lets the result go inside of the operator; what nobody saved goes behind it.
    drop(op);
    drop((mean, invstd));
    y
}

/// [`Error::Shape`] unless `x` has channels and each of `parameters` one value for each.
pub(super) fn check(op: &'static str, x: &Tensor, parameters: &[Option<&Tensor>]) -> Result<()> {
    let (Some(_), Some(&c)) = (x.dims().first(), x.dims().get(1)) else {
        return Err(Error::shape(op, format!("{:?}: expected two dimensions or more", x.dims())));
    };
    match parameters.iter().flatten().find(|p| p.dims() != [c]) {
        Some(parameter) => Err(Error::shape(op, format!("{c} channels, a parameter {:?}", parameter.dims()))),
        None => Ok(()),
    }
}

/// How an array without gaps lies in memory: `[before, channels, behind]`, whatever the order of its dimensions. All but the channels are alike.
struct Planes {
    axes: smallvec::SmallVec<[usize; 6]>,
    dims: [usize; 3],
}

impl Planes {
    fn of(x: &Array) -> Self {
        let axes = x.memory_order();
        let at = axes.iter().position(|&axis| axis == 1).unwrap_or(0);
        let product = |axes: &[usize]| axes.iter().map(|&axis| x.dims()[axis]).product();
        let dims = [product(&axes[..at]), x.dims()[1], product(&axes[at + 1..])];
        Self { axes, dims }
    }

    /// `x` contiguous in this order, copied where it lies otherwise.
    fn view(&self, x: &Array) -> Result<Array> {
        x.permute(&self.axes)?.contiguous()?.view(&self.dims)
    }

    /// `x` with its own strides, copied where its dimensions do not run together as these do.
    fn strided(&self, x: &Array) -> Result<Array> {
        x.permute(&self.axes)?.reshape(&self.dims)
    }
}

struct BatchNormBackward {
    slots: [Option<usize>; 2],
    training: bool,
    /// Type of the parameters, and so of their gradients.
    parameter: DType,
}

/// Memory that backward makes, in the order and the layouts of PyTorch's kernels.
struct Parts {
    x: Option<Array>,
    parameters: [Option<Array>; 2],
    /// Sums of the gradient and of its product with the input, which the fused kernel does not need.
    sums: Option<[Array; 2]>,
}

impl BatchNormBackward {
    /// One fused kernel, which gives a gradient in row-major order, unless the input's is not wanted, or its channels lie side by side: then a pass for
    /// the sums and one for the input, whose gradient is laid out as the input, in training.
    fn parts(&self, x: &Array, statistic: &Array, needs: Needs<'_>) -> Result<Parts> {
        let wanted = |slot: Option<usize>| slot.is_some_and(|slot| needs.input(slot));
        let side_by_side = has_channels_last(x);
        let reduces = self.training || self.slots.into_iter().any(wanted);
        let fused = reduces && needs.input(0) && !side_by_side;
        let input = || match needs.input(0) {
            true if side_by_side && self.training => {
                Array::empty_for(x.device(), x.dims(), &[x.layout()], x.dtype()).map(Some)
            }
            true => x.empty_like().map(Some),
            false => Ok(None),
        };
        let parameter = |slot| -> Result<Option<Array>> {
            wanted(slot).then(|| Array::empty(x.device(), &[x.dims()[1]], self.parameter)).transpose()
        };
        let torch = x.device().profile().torch_temporaries;
        let early = if fused { input()? } else { None };
        let sums = if torch && reduces && side_by_side {
            Some([statistic.empty_like()?, statistic.empty_like()?])
        } else {
            None
        };
        let parameters = [parameter(self.slots[0])?, parameter(self.slots[1])?];
        Ok(Parts { x: if fused { early } else { input()? }, parameters, sums })
    }
}

/// Whether the channels of each position lie side by side: PyTorch's channels-last formats, and a contiguous input of one position.
fn has_channels_last(x: &Array) -> bool {
    if x.layout().is_contiguous() && x.layout().strides()[1] == 1 {
        return true;
    }
    let mut axes: smallvec::SmallVec<[usize; 6]> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    axes.push(1);
    matches!(x.rank(), 4 | 5) && x.permute(&axes).is_ok_and(|x| x.layout().is_contiguous())
}

impl Function for BatchNormBackward {
    fn name(&self) -> &'static str {
        "NativeBatchNormBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, mean, invstd) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let weight = if self.slots[0].is_some() { Some(saved.get(3)?) } else { None };
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("native_batch_norm_backward");
        let Parts { x: out, parameters, sums } = self.parts(&x, &mean, needs)?;
        if out.is_some() || parameters.iter().any(Option::is_some) {
            let planes = Planes::of(out.as_ref().unwrap_or(&x));
            let (ordered_grad, ordered_x) = (planes.strided(grad)?, planes.strided(&x)?);
            x.device().launch(BatchNormGrad {
                training: self.training,
                grad: ordered_grad.operand(),
                x: ordered_x.operand(),
                mean: mean.operand(),
                invstd: invstd.operand(),
                weight: weight.as_ref().map(Array::operand),
                out_x: out.as_ref().map(|out| planes.view(out)).transpose()?.as_ref().map(Array::operand),
                out_weight: parameters[0].as_ref().map(Array::operand),
                out_bias: parameters[1].as_ref().map(Array::operand),
            })?;
        }
        if let Some([gradients, products]) = sums {
            drop(products);
            drop(gradients);
        }
        saved.done();
        let mut all: Grads = smallvec::smallvec![out];
        for (slot, parameter) in self.slots.into_iter().zip(parameters) {
            if slot.is_some() {
                all.push(parameter);
            }
        }
        Ok(all)
    }
}
