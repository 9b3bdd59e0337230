//! Softmax and log-softmax over any axis.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::error::Result;

/// Over the middle dimension of `x` `[outer, n, inner]`: `out = eˣ⁻ᵐ / Σ eˣ⁻ᵐ`, or its logarithm, with `m` the maximum of those n.
///
/// The elements of a group lie `inner` apart. `inner` is 1 for the last axis of a tensor, which is the common case: groups are rows then.
/// A group of `-inf` alone gives NaN, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// The logarithm of it.
    pub log: bool,
    /// `[outer, n, inner]`, contiguous.
    pub x: Operand,
    /// `[outer, n, inner]`, contiguous; a float type, not necessarily `x`'s.
    pub out: Operand,
}
kernel!(Softmax, "softmax", in_place: true, [log], { x: Read, out: Write }, flops: |k| 4 * k.out.numel() as u64);
impl Softmax {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("x", &self.x, 3)?;
        c.contiguous("x", &self.x)?;
        c.dense("out", &self.out, self.x.dims())?;
        c.float("x", &self.x)?;
        c.float("out", &self.out)
    }
}

/// Gradient of [`Softmax`] from its result `y`: `y·(grad − Σ grad·y)`, for the logarithm `grad − e^y·Σ grad`; sums over the middle dimension.
#[derive(Clone, Debug)]
pub struct SoftmaxGrad {
    /// Whether forward took the logarithm.
    pub log: bool,
    /// What forward gave, `[outer, n, inner]`, contiguous, as all operands here.
    pub y: Operand,
    /// Gradient of it.
    pub grad: Operand,
    /// Gradient of the input.
    pub out: Operand,
    /// A temporary that PyTorch makes here (`grad·y`); may be left unused.
    pub workspace: Option<Operand>,
}
kernel!(SoftmaxGrad, "softmax_grad", in_place: true, [log], { y: Read, grad: Read, out: Write, workspace: Workspace }, flops: |k| 4 * k.out.numel() as u64);
impl SoftmaxGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("y", &self.y, 3)?;
        c.contiguous("y", &self.y)?;
        c.float("y", &self.y)?;
        for (name, x) in [("grad", &self.grad), ("out", &self.out)] {
            c.dense(name, x, self.y.dims())?;
            c.float(name, x)?;
        }
        c.dtype("grad", &self.grad, self.y.dtype)
    }
}
