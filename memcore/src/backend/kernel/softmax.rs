//! Softmax and log-softmax over any axis.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::error::Result;

/// Softmax over the middle dimension of `x` `[outer, n, inner]`: `out = eˣ⁻ᵐ / Σ eˣ⁻ᵐ`, or its logarithm, with `m` the
/// maximum of the n elements.
///
/// The elements of a group are `inner` elements apart. For the last axis of a tensor, the common case, `inner` is 1 and
/// the groups are rows. A group of only `-inf` gives NaN, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// True for the logarithm.
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

/// Gradient of [`Softmax`] from its result `y`: `y·(grad − Σ grad·y)`; for the logarithm `grad − e^y·Σ grad`. Sums go
/// over the middle dimension.
#[derive(Clone, Debug)]
pub struct SoftmaxGrad {
    /// True if forward took the logarithm.
    pub log: bool,
    /// Forward's result, `[outer, n, inner]`, contiguous, as all operands here.
    pub y: Operand,
    /// Gradient of the result.
    pub grad: Operand,
    /// Gradient of the input.
    pub out: Operand,
    /// Scratch for `grad·y`, a temporary that PyTorch makes here; a kernel may leave it unused.
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
