//! Max and average pooling over two dimensions.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Window, stride, padding (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2dGeometry {
    /// Size of a window.
    pub window: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Border added on each side, at most half the window. Max pooling ignores it; average pooling counts it as zeros.
    pub padding: [usize; 2],
}

impl Pool2dGeometry {
    /// Height and width of the result: `⌊(in + 2·padding − window)/stride⌋ + 1`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the window does not fit, a size is 0 or the padding exceeds half the window.
    pub fn output_size(&self, input: [usize; 2]) -> Result<[usize; 2]> {
        let mut out = [0; 2];
        for i in 0..2 {
            let padded = input[i] + 2 * self.padding[i];
            if self.stride[i] == 0
                || self.window[i] == 0
                || padded < self.window[i]
                || 2 * self.padding[i] > self.window[i]
            {
                return Err(Error::shape("pool2d", format!("{self:?} does not fit an input of {input:?}")));
            }
            out[i] = (padded - self.window[i]) / self.stride[i] + 1;
        }
        Ok(out)
    }

    fn check(&self, c: &Check, x: (&'static str, &Operand), y: (&'static str, &Operand)) -> Result<()> {
        for (name, operand) in [x, y] {
            c.rank(name, operand, 4)?;
            c.contiguous(name, operand)?;
            c.float(name, operand)?;
            c.dtype(name, operand, y.1.dtype)?;
        }
        let d = x.1.dims();
        let [oh, ow] = self.output_size([d[2], d[3]])?;
        c.dims(y.0, y.1, &[d[0], d[1], oh, ow])
    }
}

/// The value computed from a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOp {
    /// The largest element; NaN wins; the first of equals.
    Max,
    /// The sum divided by the window's size (padding counts, PyTorch's default).
    Average,
}

/// `out[n, c, i, j] = op(window (i, j) of x[n, c])`.
#[derive(Clone, Debug)]
pub struct Pool2d {
    /// What is computed.
    pub op: PoolOp,
    /// Window, stride, padding.
    pub geometry: Pool2dGeometry,
    /// `[n, c, h, w]`, contiguous, as all operands here.
    pub x: Operand,
    /// `[n, c, oh, ow]`
    pub out: Operand,
    /// i64, `out`'s sizes: the position `y·w + x` of each maximum in its plane. Required for `Max`, absent for `Average`.
    pub indices: Option<Operand>,
}
kernel!(Pool2d, "pool2d", in_place: false, [op, geometry], { x: Read, out: Write, indices: Write }, flops: |k| (k.out.numel() * k.geometry.window[0] * k.geometry.window[1]) as u64);
impl Pool2d {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        self.geometry.check(c, ("x", &self.x), ("out", &self.out))?;
        check_indices(c, self.op, &self.indices, &self.out)
    }
}

/// Gradient of [`Pool2d`]; the gradients of overlapping windows are summed.
#[derive(Clone, Debug)]
pub struct Pool2dGrad {
    /// The operation of the forward pass.
    pub op: PoolOp,
    /// Window, stride, padding.
    pub geometry: Pool2dGeometry,
    /// Gradient of the result, `[n, c, oh, ow]`.
    pub grad: Operand,
    /// The indices that forward wrote; for `Max`.
    pub indices: Option<Operand>,
    /// Gradient of the input, `[n, c, h, w]`.
    pub out: Operand,
}
kernel!(Pool2dGrad, "pool2d_grad", in_place: false, [op, geometry], { grad: Read, indices: Read, out: Write }, flops: |k| (k.grad.numel() * k.geometry.window[0] * k.geometry.window[1]) as u64);
impl Pool2dGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        self.geometry.check(c, ("out", &self.out), ("grad", &self.grad))?;
        check_indices(c, self.op, &self.indices, &self.grad)
    }
}

fn check_indices(c: &Check, op: PoolOp, indices: &Option<Operand>, y: &Operand) -> Result<()> {
    match (op, indices) {
        (PoolOp::Max, Some(indices)) => {
            c.dtype("indices", indices, DType::I64)?;
            c.dense("indices", indices, y.dims())
        }
        (PoolOp::Average, None) => Ok(()),
        (PoolOp::Max, None) => c.fail("indices", "required for max pooling"),
        (PoolOp::Average, Some(_)) => c.fail("indices", "not used by average pooling"),
    }
}
