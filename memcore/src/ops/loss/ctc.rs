//! Connectionist temporal classification (Graves et al., 2006). Predicted only: no values are computed.
//!
//! The allocations are those of PyTorch's own kernels, `_ctc_loss` and `_ctc_loss_backward` in `aten/src/ATen/native/cuda/LossCTC.cu`.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::Reduction;
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::pointwise::binary::div;
use crate::ops::pointwise::mask::where_;
use crate::ops::predicted::predicted_only;
use crate::ops::reduce::logsumexp::log_of_sums;
use crate::ops::reduce::sums_and_extremes;

/// Options of CTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtcOptions {
    /// Length of the longest target of the batch. It is a value in PyTorch; memory grows with it.
    pub longest: usize,
    /// Losses that are infinite become 0.
    pub zero_infinity: bool,
    /// How the losses of the sequences become one.
    pub reduction: Reduction,
}

/// The loss of log-probabilities `[steps, n, classes]` against targets `[n, width]`, or against targets one after the other in one dimension. Saves the
/// log-probabilities, the targets as int64, and for each sequence and step the logarithms of `2·longest + 1` probabilities. Predicted only.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; [`Error::Invalid`] on a device that computes, and for an element type that PyTorch has no kernel for; errors of
/// the device.
pub fn ctc_loss(log_probs: &Tensor, targets: &Tensor, options: CtcOptions) -> Result<Tensor> {
    const OP: &str = "ctc_loss";
    let ([_, n, _], longest) = (log_probs.dims(), options.longest) else {
        return Err(Error::shape(OP, format!("{:?}: expected [steps, n, classes]", log_probs.dims())));
    };
    let fits = match targets.dims() {
        [all] => *all >= longest,
        [rows, width] => rows == n && *width >= longest,
        _ => false,
    };
    if !fits || *n == 0 {
        let detail = format!("{:?} against {:?}, the longest of {longest}", log_probs.dims(), targets.dims());
        return Err(Error::shape(OP, detail));
    }
    if !matches!(log_probs.dtype(), DType::F32 | DType::F64) {
        return Err(Error::invalid(OP, format!("PyTorch has no kernel for {}", log_probs.dtype())));
    }
    predicted_only(OP, log_probs.device())?;
    let _op = context::op(OP);
    let losses = {
        let losses = of_sequences(log_probs, targets, options)?;
        if options.zero_infinity { without_infinite(&losses)? } else { losses }
    };
    match options.reduction {
        Reduction::None => Ok(losses),
        Reduction::Sum => sums_and_extremes::sum(&losses),
        Reduction::Mean => mean_by_length(&losses),
    }
}

/// The loss of each sequence.
fn of_sequences(log_probs: &Tensor, targets: &Tensor, options: CtcOptions) -> Result<Tensor> {
    let CtcOptions { longest, zero_infinity, .. } = options;
    let targets = context::within("to>_to_copy", || targets.array().cast(DType::I64))?;
    let [steps, n, _] = *log_probs.dims() else { unreachable!("the sizes were checked") };
    let _op = context::op("_ctc_loss");
    let lengths = Lengths::new(log_probs.array())?;
    let log_alpha = Array::empty(log_probs.device(), &[n, steps, 2 * longest + 1], log_probs.dtype())?;
    let losses = Array::empty(log_probs.device(), &[n], log_probs.dtype())?;
    lengths.freed();
    record(losses.clone(), &[log_probs], |saved| {
        saved.save("log_probs", log_probs.array())?;
        saved.save("targets", &targets)?;
        saved.save("result0", &losses)?;
        saved.save("result1", &log_alpha)?;
        Ok(Box::new(CtcBackward { longest, zero_infinity }))
    })
}

/// Lengths of targets and of inputs, and where each target begins: on the device while a kernel runs.
struct Lengths {
    of_targets: Array,
    of_inputs: Array,
    offsets: Array,
}

impl Lengths {
    fn new(log_probs: &Array) -> Result<Self> {
        let made = || Array::empty(log_probs.device(), &log_probs.dims()[1..2], DType::I64);
        Ok(Self { of_targets: made()?, of_inputs: made()?, offsets: made()? })
    }

    /// Frees them in PyTorch's order.
    fn freed(self) {
        let Self { of_targets, of_inputs, offsets } = self;
        drop(of_inputs);
        drop(of_targets);
        drop(offsets);
    }
}

/// The losses, with 0 instead of what is infinite.
fn without_infinite(losses: &Tensor) -> Result<Tensor> {
    let device = losses.device();
    let zero =
        context::within("scalar_tensor", || Array::empty(device, &[], losses.dtype())).map(Tensor::from_array)?;
    let infinite =
        context::within("eq", || Array::empty(device, losses.dims(), DType::Bool)).map(Tensor::from_array)?;
    let chosen = where_(&infinite, &zero, losses)?;
    drop(infinite);
    drop(zero);
    Ok(chosen)
}

/// The mean of the losses, each divided by the length of its target.
fn mean_by_length(losses: &Tensor) -> Result<Tensor> {
    let lengths = Array::empty(losses.device(), losses.dims(), losses.dtype())?;
    let at_least_one = context::within("clamp_min", || lengths.empty_like()).map(Tensor::from_array)?;
    drop(lengths);
    let shares = div(losses, &at_least_one)?;
    let mean = sums_and_extremes::mean(&shares)?;
    drop(shares);
    Ok(mean)
}

struct CtcBackward {
    longest: usize,
    zero_infinity: bool,
}

impl CtcBackward {
    /// True if PyTorch takes the gradient of the blanks by reductions, instead of all in one kernel. The bound is its own.
    fn is_large(log_probs: &Array) -> bool {
        let [steps, n, classes] = *log_probs.dims() else { return false };
        2 * steps + 24 * n / 10 + 2 * classes / 10 > 450
    }

    /// Allocates what the gradient of the blanks takes: of both logarithms together, at every other place.
    fn blanks(&self, log_probs: &Array, log_beta: &Array) -> Result<()> {
        let dims = [log_beta.dims()[0], log_beta.dims()[1], self.longest + 1];
        let both = context::within("add", || Array::empty(log_probs.device(), &dims, log_probs.dtype()))?;
        drop(context::within("logsumexp", || log_of_sums(&both, &[2], true))?);
        Ok(())
    }

    /// Returns the gradient in new memory, with 0 for sequences whose loss is infinite.
    fn without_infinite(grad: Array) -> Result<Array> {
        let device = grad.device();
        let zero = context::within("zeros", || Array::empty(device, &[], grad.dtype()))?;
        let infinite = context::within("eq", || Array::empty(device, &[1, grad.dims()[1], 1], DType::Bool))?;
        let chosen = context::within("where", || grad.empty_like())?;
        drop(infinite);
        drop(zero);
        Ok(chosen)
    }
}

impl Function for CtcBackward {
    fn name(&self) -> &'static str {
        "CtcLossBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (log_probs, log_alpha) = (saved.get(0)?, saved.get(3)?);
        if grads[0].is_none() {
            return Ok(Grads::new());
        }
        let _op = context::op("_ctc_loss_backward");
        let lengths = Lengths::new(&log_probs)?;
        let log_beta = log_alpha.empty_like()?;
        let mut grad =
            context::within("full_like", || Array::empty(log_probs.device(), log_probs.dims(), log_probs.dtype()))?;
        if Self::is_large(&log_probs) {
            self.blanks(&log_probs, &log_beta)?;
            if self.zero_infinity {
                grad = Self::without_infinite(grad)?;
            }
        }
        drop(log_beta);
        lengths.freed();
        drop((log_probs, log_alpha));
        saved.done();
        Ok(smallvec![Some(grad)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    /// The fewest steps at which the real PyTorch 2.11 took the other way, for sequences and classes.
    #[test]
    fn many_steps_sequences_and_classes_are_large() {
        let device = Device::meta("torch-2.11-sm90").unwrap();
        for [steps, n, classes] in [[219, 4, 20], [218, 5, 20], [213, 9, 24], [222, 3, 5], [5, 100, 1009], [1, 1, 2235]]
        {
            let is_large =
                |steps| CtcBackward::is_large(&Array::empty(&device, &[steps, n, classes], DType::F32).unwrap());
            assert!(is_large(steps) && !is_large(steps - 1), "{steps} {n} {classes}");
        }
    }

    #[test]
    fn targets_that_do_not_fit_and_other_types_are_refused() {
        let device = Device::meta("torch-2.11-sm90").unwrap();
        let of = |dims: &[usize], dtype| Tensor::from_array(Array::empty(&device, dims, dtype).unwrap());
        let loss = |probs: &[usize], targets: &[usize], longest, dtype| {
            let options = CtcOptions { longest, zero_infinity: false, reduction: Reduction::Mean };
            ctc_loss(&of(probs, dtype), &of(targets, DType::I64), options)
        };
        assert_eq!(loss(&[8, 2, 5], &[2, 3], 3, DType::F32).unwrap().dims(), [0; 0]);
        assert!(loss(&[8, 2, 5], &[2, 3], 4, DType::F32).is_err());
        assert!(loss(&[8, 2, 5], &[3, 3], 3, DType::F32).is_err());
        assert!(loss(&[8, 5], &[3], 3, DType::F32).is_err());
        let error = loss(&[8, 2, 5], &[6], 3, DType::BF16).err().unwrap().to_string();
        assert!(error.contains("no kernel for bfloat16"), "{error}");
    }
}
