//! Batch normalisation as PyTorch runs it with cuDNN.
//!
//! Compared with PyTorch 2.11 and 2.15, on a stand-in for cuDNN without a workspace of its own (cuDNN is known to need none for channels first).

use super::batch_kernels::{
    BatchNormOptions, Given, Plan, RunningStats, has_channels_last, invert_deviation, normalise,
};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::deviation::Deviation;
use crate::dtype::DType;
use crate::error::Result;

/// Most examples of a batch: in training, and in evaluation.
const MAX_EXAMPLES: [usize; 2] = [880_801, 65_535];

/// Returns weight and bias if PyTorch takes cuDNN: cuDNN exists, `x` is a picture or a sequence in f32 or float16, and both parameters are
/// f32.
pub(in crate::ops) fn takes<'a>(
    x: &Tensor,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    training: bool,
) -> Option<[&'a Tensor; 2]> {
    let parameters = [weight?, bias?];
    let suits = x.rank() >= 3
        && x.dims()[0] <= MAX_EXAMPLES[usize::from(!training)]
        && matches!(x.dtype(), DType::F32 | DType::F16)
        && parameters.iter().all(|parameter| parameter.dtype() == DType::F32);
    (suits && x.device().has_cudnn_or(Deviation::WithoutCudnn)).then_some(parameters)
}

/// As [`super::batch`], with the input made contiguous first. Statistics are made in training only; evaluation keeps the running ones.
pub(in crate::ops) fn batch_norm(
    x: &Tensor,
    [weight, bias]: [&Tensor; 2],
    running: Option<RunningStats<'_>>,
    options: BatchNormOptions,
) -> Result<Tensor> {
    let ordered = context::within("_batch_norm_impl_index", || in_order(x.array(), has_channels_last(x.array())))?;
    let op = context::op("_batch_norm_impl_index>cudnn_batch_norm");
    let y = ordered.empty_alike()?;
    let statistic = || Array::empty(x.device(), &[x.dims()[1]], DType::F32);
    let batch = if options.training { Some((statistic()?, statistic()?)) } else { None };
    let filled = batch.as_ref().map(|(mean, invstd)| [mean, invstd]);
    normalise(&ordered, [Some(weight), Some(bias)], running, options, &y, filled)?;
    let y = record(y, &[x, weight, bias], |saved| {
        saved.save("input", &ordered)?;
        let kept = running.map(|running| [running.mean, running.var]);
        for (role, array) in ["save_mean", "save_var"].into_iter().zip(filled.or(kept).into_iter().flatten()) {
            saved.save(role, array)?;
        }
        saved.save("weight", weight.array())?;
        Ok(Box::new(CudnnBatchNormBackward { training: options.training, eps: options.eps }))
    });
    drop(op);
    drop(batch);
    drop(ordered);
    y
}

/// Returns `x` without gaps: with the channels innermost, or in row-major order.
fn in_order(x: &Array, channels_last: bool) -> Result<Array> {
    if !channels_last {
        return x.contiguous();
    }
    let rank = x.rank();
    let last: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    x.permute(&last)?.contiguous()?.permute(&first)
}

struct CudnnBatchNormBackward {
    training: bool,
    eps: f64,
}

/// Places of weight and bias among the inputs.
const SLOTS: [Option<usize>; 2] = [Some(1), Some(2)];

impl Function for CudnnBatchNormBackward {
    fn name(&self) -> &'static str {
        "CudnnBatchNormBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let [x, mean, statistic, weight] = [saved.get(0)?, saved.get(1)?, saved.get(2)?, saved.get(3)?];
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let given =
            Given { grad, x: &x, mean: &mean, invstd: &statistic, weight: Some(&weight), training: self.training };
        let all = if self.training { in_training(&given, needs)? } else { in_evaluation(&given, self.eps, needs)? };
        saved.done();
        Ok(all)
    }
}

/// Makes all three gradients, required or not, from a gradient in the input's layout.
fn in_training(given: &Given<'_>, needs: Needs<'_>) -> Result<Grads> {
    let x = given.x;
    let grad = in_order(given.grad, has_channels_last(x))?;
    let op = context::op("cudnn_batch_norm_backward");
    let out = x.empty_alike()?;
    let parameters = [given.mean.empty_like()?, given.mean.empty_like()?];
    Given { grad: &grad, ..*given }.fill(Some(&out), [Some(&parameters[0]), Some(&parameters[1])])?;
    drop(op);
    let all = std::iter::once(out).chain(parameters).enumerate();
    Ok(all.map(|(i, gradient)| Some(gradient).filter(|_| needs.input(i))).collect())
}

/// Makes the gradients by PyTorch's own kernels, which have only the running variance (`given.invstd`). The fused kernel has no memory for the
/// inverse deviation: it uses the memory of the bias gradient, until the bias gradient is summed.
fn in_evaluation(given: &Given<'_>, eps: f64, needs: Needs<'_>) -> Result<Grads> {
    let _op = context::op("native_batch_norm_backward");
    let native = Plan { slots: SLOTS, training: false, parameter: DType::F32 };
    let fused = native.is_fused(given.x, needs);
    let separate = if fused && needs.input(2) { None } else { Some(given.mean.empty_like()?) };
    let mut parts = native.parts([given.grad, given.x], given.mean, needs)?;
    let [weight, bias] = [parts.parameters[0].as_ref(), parts.parameters[1].as_ref()];
    if let Some(invstd) = separate.as_ref().or(bias) {
        invert_deviation(given.invstd, eps, invstd)?;
        let together = bias.filter(|_| separate.is_some());
        Given { invstd, ..*given }.fill(parts.x.as_ref(), [weight, together])?;
    }
    if separate.is_none() {
        // This call does not read the deviation.
        given.fill(None, [None, bias])?;
    }
    parts.release_sums();
    drop(separate);
    Ok(parts.into_grads(SLOTS))
}
