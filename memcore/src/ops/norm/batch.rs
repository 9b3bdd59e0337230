//! Batch normalisation.

use super::batch_cudnn;
use super::batch_kernels::{BatchNormOptions, Given, Plan, RunningStats, invert_deviation, normalise, staged};
use super::rows::present;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::error::{Error, Result};

/// Normalises each channel (dimension 1) of `x` `[n, c, ..]` over all other dimensions, then multiplies by weight and adds bias (`[c]`
/// each).
///
/// Saves the input, the weight, and the mean and reciprocal deviation that it used (4 bytes per channel each, in evaluation too). In training
/// it updates the running statistics in place. The result is laid out as `x`, without gaps. Weight, bias and statistics may be f32 beside a
/// 16-bit input: no operator casts them. If a profile has cuDNN, cuDNN is used where PyTorch uses it (see `batch_norm_cudnn`).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit; [`Error::Invalid`] for evaluation without running statistics; errors of the device.
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
    if let Some(parameters) = batch_cudnn::takes(x, weight, bias, options.training) {
        return batch_cudnn::batch_norm(x, parameters, running, options);
    }
    let op = context::op("_batch_norm_impl_index>native_batch_norm");
    let y = x.array().empty_alike()?;
    let statistic = || Array::empty(x.device(), &[x.dims()[1]], x.dtype().accumulator());
    let (mean, invstd) = (statistic()?, statistic()?);
    if options.training {
        drop(staged(x.array(), 4)?);
    }
    let batch = options.training.then_some([&mean, &invstd]);
    normalise(x.array(), [weight, bias], running, options, &y, batch)?;
    let (inputs, slots) = present(x, &[weight, bias]);
    let parameter = weight.or(bias).map_or(x.dtype(), Tensor::dtype);
    let y = record(y, &inputs, |saved| {
        if let (false, Some(running)) = (options.training, running) {
            mean.copy_(running.mean)?;
            invert_deviation(running.var, options.eps, &invstd)?;
        }
        // In the order of PyTorch's release: instance normalisation has a weight that nobody else holds.
        saved.save("input", x.array())?;
        if let Some(weight) = weight {
            saved.save("weight", weight.array())?;
        }
        saved.save("save_mean", &mean)?;
        saved.save("save_invstd", &invstd)?;
        Ok(Box::new(BatchNormBackward(Plan { slots, training: options.training, parameter })))
    });
    // A recomputation that stops while values are saved frees the result inside the operator. Values that no node saved are freed after it.
    drop(op);
    drop((mean, invstd));
    y
}

/// Returns [`Error::Shape`] unless `x` has channels and each of `parameters` has one value per channel.
pub(in crate::ops) fn check(op: &'static str, x: &Tensor, parameters: &[Option<&Tensor>]) -> Result<()> {
    let (Some(_), Some(&c)) = (x.dims().first(), x.dims().get(1)) else {
        return Err(Error::shape(op, format!("{:?}: expected two dimensions or more", x.dims())));
    };
    match parameters.iter().flatten().find(|p| p.dims() != [c]) {
        Some(parameter) => Err(Error::shape(op, format!("{c} channels, a parameter {:?}", parameter.dims()))),
        None => Ok(()),
    }
}

struct BatchNormBackward(Plan);

impl Function for BatchNormBackward {
    fn name(&self) -> &'static str {
        "NativeBatchNormBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Self(plan) = self;
        let has_weight = plan.slots[0].is_some();
        let (x, weight) = (saved.get(0)?, if has_weight { Some(saved.get(1)?) } else { None });
        let (mean, invstd) = (saved.get(1 + usize::from(has_weight))?, saved.get(2 + usize::from(has_weight))?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("native_batch_norm_backward");
        let mut parts = plan.parts([grad, &x], &mean, needs)?;
        let given =
            Given { grad, x: &x, mean: &mean, invstd: &invstd, weight: weight.as_ref(), training: plan.training };
        given.fill(parts.x.as_ref(), [parts.parameters[0].as_ref(), parts.parameters[1].as_ref()])?;
        parts.release_sums();
        saved.done();
        Ok(parts.into_grads(plan.slots))
    }
}
