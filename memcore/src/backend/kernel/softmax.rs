//! Softmax and log-softmax over rows.

use super::{Check, kernel};
use crate::backend::Operand;
use crate::error::Result;

/// Over each row of `x` `[rows, n]`: `out = eˣ⁻ᵐ / Σ eˣ⁻ᵐ`, or its logarithm, with `m` the row's maximum.
///
/// A row of `-inf` alone gives NaN, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// The logarithm of it.
    pub log: bool,
    /// `[rows, n]`, contiguous.
    pub x: Operand,
    /// `[rows, n]`, contiguous; a float type, not necessarily `x`'s.
    pub out: Operand,
}
kernel!(Softmax, "softmax", in_place: true, { x: Read, out: Write }, flops: |k| 4 * k.out.numel() as u64);
impl Softmax {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("x", &self.x, 2)?;
        c.contiguous("x", &self.x)?;
        c.dense("out", &self.out, self.x.dims())?;
        c.float("x", &self.x)?;
        c.float("out", &self.out)
    }
}

/// Gradient of [`Softmax`] from its result `y`: `y·(grad − Σ grad·y)`, for the logarithm `grad − e^y·Σ grad`.
#[derive(Clone, Debug)]
pub struct SoftmaxGrad {
    /// Whether forward took the logarithm.
    pub log: bool,
    /// What forward gave, `[rows, n]`, contiguous, as all operands here.
    pub y: Operand,
    /// Gradient of it.
    pub grad: Operand,
    /// Gradient of the input.
    pub out: Operand,
    /// A temporary that PyTorch makes here (`grad·y`); may be left unused.
    pub workspace: Option<Operand>,
}
kernel!(SoftmaxGrad, "softmax_grad", in_place: true, { y: Read, grad: Read, out: Write, workspace: Workspace }, flops: |k| 4 * k.out.numel() as u64);
impl SoftmaxGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("y", &self.y, 2)?;
        c.contiguous("y", &self.y)?;
        c.float("y", &self.y)?;
        for (name, x) in [("grad", &self.grad), ("out", &self.out)] {
            c.dense(name, x, self.y.dims())?;
            c.float(name, x)?;
        }
        c.dtype("grad", &self.grad, self.y.dtype)
    }
}
