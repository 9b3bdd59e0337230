//! What all convolutions do around their computation.

use smallvec::SmallVec;

use crate::array::Array;
use crate::autograd::{Function, KeptOp, Recorder, Tensor, kept_result, record_inputs};
use crate::context;
use crate::error::Result;
use crate::ops::autocast::lower;

/// Computes a convolution in the type of the region, and records it with input and weight saved, in this order. `compute` is given input, weight and
/// bias.
///
/// # Errors
/// Those of `compute`, and of the device for conversions.
pub(in crate::ops) fn recorded(
    op: &'static str,
    [x, weight]: [&Tensor; 2],
    bias: Option<&Tensor>,
    backward: impl Function + 'static,
    compute: impl FnOnce(&Array, &Array, Option<&Array>) -> Result<Array>,
) -> Result<Tensor> {
    let _outer = context::op(op);
    let bias = bias.map(lower).transpose()?;
    let (weight, x) = (&lower(weight)?, &lower(x)?);
    let _op = context::op("convolution");
    let inputs: SmallVec<[&Tensor; 3]> = [Some(x), Some(weight), bias.as_ref()].into_iter().flatten().collect();
    let describe = |saved: &mut Recorder| -> Result<Box<dyn Function>> {
        saved.save("input", x.array())?;
        saved.save("weight", weight.array())?;
        Ok(Box::new(backward))
    };
    let compute = || compute(x.array(), weight.array(), bias.as_ref().map(Tensor::array));
    record_inputs(&inputs, describe, || kept_result(KeptOp::Convolution, compute))
}
