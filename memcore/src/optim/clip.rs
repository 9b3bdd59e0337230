//! Gradient clipping.

use super::{Implementation, drop_reversed};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::MAX_RANK;
use crate::nn::Parameter;

/// Elements of a tensor that one block of PyTorch's multi-tensor kernels goes through.
const CHUNK: usize = 65_536;

/// Scales all gradients down so that their joint 2-norm is at most `max_norm`; returns the norm before, a scalar on the device
/// (`None` without gradients). As PyTorch's: `grad *= min(1, max_norm/(norm + 1e-6))`, computed on the device without a read, over lists of
/// tensors as PyTorch does on a GPU.
///
/// # Errors
/// Those of the device.
pub fn clip_grad_norm(parameters: &[Parameter], max_norm: f64) -> Result<Option<Array>> {
    clip_grad_norm_with(parameters, max_norm, Implementation::Foreach)
}

/// As [`clip_grad_norm`]; with [`Implementation::Loop`] one norm after the other.
///
/// # Errors
/// Those of the device.
pub fn clip_grad_norm_with(
    parameters: &[Parameter],
    max_norm: f64,
    implementation: Implementation,
) -> Result<Option<Array>> {
    let grads: Vec<Array> = parameters.iter().filter_map(Parameter::grad).collect();
    let Some(first) = grads.first() else { return Ok(None) };
    let norms = match implementation {
        Implementation::Loop => grads.iter().map(norm).collect::<Result<Vec<Array>>>()?,
        Implementation::Foreach | Implementation::Fused => foreach_norm(&grads)?,
    };
    let make = || Array::empty(first.device(), &[grads.len()], first.dtype());
    let stacked = context::within("stack>cat", make)?;
    for (i, norm) in norms.iter().enumerate() {
        stacked.narrow(0, i, 1)?.copy_(norm)?;
    }
    let total = norm(&stacked)?;
    drop(stacked);
    drop_reversed(norms);
    let coefficient = {
        let shifted = context::within("add", || total.affine(1.0, 1e-6))?;
        let inverse = context::within("reciprocal", || shifted.unary(UnaryOp::Reciprocal))?;
        context::within("mul", || inverse.affine(max_norm, 0.0))?
    };
    let bound = UnaryOp::Clamp { min: f64::NEG_INFINITY, max: 1.0 };
    let clamped = context::within("clamp", || coefficient.unary(bound))?;
    drop(coefficient);
    for grad in &grads {
        grad.binary_(BinaryOp::Mul, &clamped)?;
    }
    Ok(Some(total))
}

/// Bounds every element of the gradients to `[−limit, limit]`, in place.
///
/// # Errors
/// Those of the device.
pub fn clip_grad_value(parameters: &[Parameter], limit: f64) -> Result<()> {
    let _op = context::op("clip_grad_value_");
    for grad in parameters.iter().filter_map(Parameter::grad) {
        grad.unary_(UnaryOp::Clamp { min: -limit, max: limit })?;
    }
    Ok(())
}

/// The 2-norm of all elements.
fn norm(x: &Array) -> Result<Array> {
    let _op = context::op("linalg_vector_norm");
    let squares = x.reduce(ReduceOp::SumSquares, &[], false)?;
    squares.unary_(UnaryOp::Sqrt)?;
    Ok(squares)
}

/// What PyTorch's kernel for norms of several tensors gathers its partial sums in.
struct PartialSums {
    // Freed in this order.
    _sums: Array,
    _offsets: Option<Array>,
}

impl PartialSums {
    /// Of all tensors the chunks of the largest, or, with [offsets](crate::Profile::norms_by_offsets), of each its own, which skips empty ones.
    fn new(device: &Device, arrays: &[Array]) -> Result<Self> {
        let dtype = arrays.first().map_or(DType::F32, Array::dtype).accumulator();
        let chunks = || arrays.iter().map(|array| array.numel().div_ceil(CHUNK)).filter(|&chunks| chunks > 0);
        if !device.profile().norms_by_offsets {
            let count = arrays.len() * chunks().max().unwrap_or(0);
            let sums = context::within("zeros", || Array::empty(device, &[count], dtype))?;
            return Ok(Self { _sums: sums, _offsets: None });
        }
        let offsets = context::within("to>_to_copy", || Array::empty(device, &[chunks().count() + 1], DType::I64))?;
        let sums = Array::empty(device, &[chunks().sum()], dtype)?;
        Ok(Self { _sums: sums, _offsets: Some(offsets) })
    }
}

/// The 2-norm of each array. PyTorch's kernel gathers a partial sum for each chunk of each tensor first.
fn foreach_norm(arrays: &[Array]) -> Result<Vec<Array>> {
    let _op = context::op("_foreach_norm");
    let Some(first) = arrays.first() else { return Ok(Vec::new()) };
    let device = first.device();
    let partial = if device.profile().torch_temporaries { Some(PartialSums::new(device, arrays)?) } else { None };
    let norms: Result<Vec<Array>> = arrays.iter().map(|a| Array::empty(device, &[], a.dtype())).collect();
    let norms = norms?;
    for (array, norm) in arrays.iter().zip(&norms) {
        array.reduce_axes_into(ReduceOp::SumSquares, &norm.view(&[1; MAX_RANK][..array.rank()])?)?;
        norm.unary_(UnaryOp::Sqrt)?;
    }
    drop(partial);
    Ok(norms)
}
