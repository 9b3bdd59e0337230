//! Two-dimensional convolution and its gradients. The backend picks the algorithm.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::error::{Error, Result};

/// Stride, padding, dilation (height, width) and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2dGeometry {
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Zeros added at each border.
    pub padding: [usize; 2],
    /// Steps between elements of a window.
    pub dilation: [usize; 2],
    /// Channels are split into this many independent groups.
    pub groups: usize,
}

impl Default for Conv2dGeometry {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Conv2dGeometry {
    /// Height and width of the result for an input and a window of these sizes:
    /// `⌊(in + 2·padding − dilation·(window − 1) − 1)/stride⌋ + 1`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the window does not fit or a stride or dilation is 0.
    pub fn output_size(&self, input: [usize; 2], window: [usize; 2]) -> Result<[usize; 2]> {
        let mut out = [0; 2];
        for i in 0..2 {
            if self.stride[i] == 0 || self.dilation[i] == 0 || window[i] == 0 || self.groups == 0 {
                return Err(Error::shape("conv2d", "stride, dilation, kernel size and groups must be at least 1"));
            }
            let padded = input[i] + 2 * self.padding[i];
            let reach = self.dilation[i] * (window[i] - 1) + 1;
            if padded < reach {
                return Err(Error::shape(
                    "conv2d",
                    format!("a window of {reach} does not fit an input of {padded} (padding included)"),
                ));
            }
            out[i] = (padded - reach) / self.stride[i] + 1;
        }
        Ok(out)
    }

    /// Checks input `[n, c, h, w]`, weight `[o, c/groups, kh, kw]` and output `[n, o, oh, ow]` against each other.
    fn check(
        &self,
        c: &Check,
        x: (&'static str, &Operand),
        w: (&'static str, &Operand),
        y: (&'static str, &Operand),
    ) -> Result<()> {
        for (name, operand) in [x, w, y] {
            c.rank(name, operand, 4)?;
            c.contiguous(name, operand)?;
            c.float(name, operand)?;
            c.dtype(name, operand, y.1.dtype)?;
        }
        let (xd, wd) = (x.1.dims(), w.1.dims());
        c.that(self.groups > 0 && xd[1] == wd[1] * self.groups && wd[0] % self.groups == 0, w.0, || {
            format!("{wd:?} does not fit {} channels in {} groups", xd[1], self.groups)
        })?;
        let [oh, ow] = self.output_size([xd[2], xd[3]], [wd[2], wd[3]])?;
        c.dims(y.0, y.1, &[xd[0], wd[0], oh, ow])
    }
}

fn flops(weight: &Operand, output: &Operand) -> u64 {
    let w = weight.dims();
    2 * (output.numel() * w[1] * w[2] * w[3]) as u64
}

/// `out[n, o] = bias[o] + Σ_c weight[o, c] ⋆ x[n, c]` (cross-correlation, as in every framework).
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// Stride, padding, dilation, groups.
    pub geometry: Conv2dGeometry,
    /// `[n, c, h, w]`, contiguous, as all operands here.
    pub x: Operand,
    /// `[o, c/groups, kh, kw]`
    pub weight: Operand,
    /// `[o]`
    pub bias: Option<Operand>,
    /// `[n, o, oh, ow]`
    pub out: Operand,
    /// Scratch that core allocated for this call.
    pub workspace: Option<Operand>,
}
kernel!(Conv2d, "conv2d", in_place: false, [geometry], { x: Read, weight: Read, bias: Read, out: Write, workspace: Workspace }, flops: |k| flops(&k.weight, &k.out));
impl Conv2d {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        self.geometry.check(c, ("x", &self.x), ("weight", &self.weight), ("out", &self.out))?;
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        c.dtype("bias", bias, self.out.dtype)?;
        c.dense("bias", bias, &[self.weight.dims()[0]])
    }
}

/// Gradient of [`Conv2d`] for its input.
#[derive(Clone, Debug)]
pub struct Conv2dInputGrad {
    /// Stride, padding, dilation, groups.
    pub geometry: Conv2dGeometry,
    /// Gradient of the result, `[n, o, oh, ow]`.
    pub grad: Operand,
    /// `[o, c/groups, kh, kw]`
    pub weight: Operand,
    /// Gradient of the input, `[n, c, h, w]`.
    pub out: Operand,
    /// Scratch that core allocated for this call.
    pub workspace: Option<Operand>,
}
kernel!(Conv2dInputGrad, "conv2d_input_grad", in_place: false, [geometry], { grad: Read, weight: Read, out: Write, workspace: Workspace }, flops: |k| flops(&k.weight, &k.grad));
impl Conv2dInputGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        self.geometry.check(c, ("out", &self.out), ("weight", &self.weight), ("grad", &self.grad))
    }
}

/// Gradient of [`Conv2d`] for its weight. (The bias's is a [`Reduce`](super::Reduce).)
#[derive(Clone, Debug)]
pub struct Conv2dWeightGrad {
    /// Stride, padding, dilation, groups.
    pub geometry: Conv2dGeometry,
    /// The input, `[n, c, h, w]`.
    pub x: Operand,
    /// Gradient of the result, `[n, o, oh, ow]`.
    pub grad: Operand,
    /// Gradient of the weight, `[o, c/groups, kh, kw]`.
    pub out: Operand,
    /// Scratch that core allocated for this call.
    pub workspace: Option<Operand>,
}
kernel!(Conv2dWeightGrad, "conv2d_weight_grad", in_place: false, [geometry], { x: Read, grad: Read, out: Write, workspace: Workspace }, flops: |k| flops(&k.out, &k.grad));
impl Conv2dWeightGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        self.geometry.check(c, ("x", &self.x), ("out", &self.out), ("grad", &self.grad))
    }
}
