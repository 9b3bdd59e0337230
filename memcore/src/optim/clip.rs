//! Gradient clipping.

use crate::array::Array;
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::error::Result;
use crate::nn::Parameter;

/// Scales all gradients down so that their joint 2-norm is at most `max_norm`; returns the norm before, a scalar on the device
/// (`None` without gradients). As PyTorch's: `grad *= min(1, max_norm/(norm + 1e-6))`, computed on the device without a read.
///
/// # Errors
/// Those of the device.
pub fn clip_grad_norm(parameters: &[Parameter], max_norm: f64) -> Result<Option<Array>> {
    let _op = context::op("clip_grad_norm_");
    let grads: Vec<Array> = parameters.iter().filter_map(Parameter::grad).collect();
    let Some(first) = grads.first() else { return Ok(None) };
    let norms: Result<Vec<Array>> = grads.iter().map(norm).collect();
    let norms = norms?;
    let stacked = Array::empty(first.device(), &[grads.len()], first.dtype())?;
    for (i, norm) in norms.iter().enumerate() {
        stacked.narrow(0, i, 1)?.copy_(norm)?;
    }
    drop(norms);
    let total = norm(&stacked)?;
    drop(stacked);
    let coefficient = {
        let shifted = total.affine(1.0, 1e-6)?;
        let limit = Array::full(first.device(), &[], first.dtype(), max_norm)?;
        limit.binary(BinaryOp::Div, &shifted)?
    };
    coefficient.unary_(UnaryOp::Clamp { min: f64::NEG_INFINITY, max: 1.0 })?;
    for grad in &grads {
        grad.binary_(BinaryOp::Mul, &coefficient)?;
    }
    Ok(Some(total))
}

/// The 2-norm of all elements.
fn norm(x: &Array) -> Result<Array> {
    let squares = x.reduce(ReduceOp::SumSquares, &[], false)?;
    squares.unary_(UnaryOp::Sqrt)?;
    Ok(squares)
}
