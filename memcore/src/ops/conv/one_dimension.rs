//! Convolution and pooling of sequences `[n, c, l]`. As in PyTorch's native operators, they are pictures of one row.

use smallvec::smallvec;

use super::conv2d::{Convolved, convolution};
use super::transpose2d::conv_transpose2d;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{Conv2dGeometry, Pool2dGeometry};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::pool::pool2d::{adaptive_avg_pool2d, avg_pool2d, max_pool};
use crate::ops::shape::view::{squeeze, unsqueeze};

/// Options of a convolution over a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1dGeometry {
    /// Elements from one window to the next.
    pub stride: usize,
    /// Zeros added on each side.
    pub padding: usize,
    /// Distance between neighbouring elements of a window.
    pub dilation: usize,
    /// Number of channel groups, each of which is convolved by itself.
    pub groups: usize,
}

/// Options of a pooling over a sequence: window, stride and padding, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool1dGeometry {
    /// Size of a window.
    pub window: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Elements added on each side.
    pub padding: usize,
}

impl Conv1dGeometry {
    fn of_pictures(self) -> Conv2dGeometry {
        Conv2dGeometry {
            stride: [1, self.stride],
            padding: [0, self.padding],
            dilation: [1, self.dilation],
            groups: self.groups,
        }
    }
}

impl Pool1dGeometry {
    fn of_pictures(self) -> Pool2dGeometry {
        Pool2dGeometry { window: [1, self.window], stride: [1, self.stride], padding: [0, self.padding] }
    }
}

fn line(op: &'static str, x: &Tensor) -> Result<Tensor> {
    if x.rank() != 3 {
        return Err(Error::shape(op, format!("{:?}: expected three dimensions", x.dims())));
    }
    unsqueeze(x, 2)
}

/// `weight ⋆ x + bias`: `[n, c, l]` and `[o, c/groups, k]` give `[n, o, ol]`. Saves input and weight.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn conv1d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, geometry: Conv1dGeometry) -> Result<Tensor> {
    let (x, weight) = (row("conv1d", x)?, row("conv1d", weight)?);
    only_row(&convolution("conv1d", &x, &weight, bias, geometry.of_pictures(), Convolved::Sequences)?)
}

/// The transpose of a convolution with this geometry: `[n, c, l]` and `[c, o, k]` give `[n, o, ol]`, with `more` elements at the end. Saves input and
/// weight.
///
/// # Errors
/// As those of [`conv_transpose2d`].
pub fn conv_transpose1d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: Conv1dGeometry,
    more: usize,
) -> Result<Tensor> {
    let (x, weight) = (row("conv_transpose1d", x)?, row("conv_transpose1d", weight)?);
    only_row(&conv_transpose2d(&x, &weight, bias, geometry.of_pictures(), [0, more])?)
}

/// Turns a picture of one row into a sequence, inside the convolution.
fn only_row(y: &Tensor) -> Result<Tensor> {
    record(y.array().squeeze(2)?, &[y], |_| Ok(Box::new(OneRow { added: false })))
}

/// Turns a sequence into a picture of one row, inside the convolution. PyTorch has no node for it, and the result does not count as a view.
fn row(op: &'static str, x: &Tensor) -> Result<Tensor> {
    if x.rank() != 3 {
        return Err(Error::shape(op, format!("{:?}: expected three dimensions", x.dims())));
    }
    record(x.array().unsqueeze(2)?, &[x], |_| Ok(Box::new(OneRow { added: true })))
}

struct OneRow {
    /// True if the row was added, false if it was removed.
    added: bool,
}

impl Function for OneRow {
    fn name(&self) -> &'static str {
        "ConvolutionBackward0"
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        Ok(smallvec![Some(if self.added { grad.squeeze(2)? } else { grad.unsqueeze(2)? })])
    }
}

/// The largest element of each window of `[n, c, l]`. Saves its input and the positions, 8 bytes per element of the result.
///
/// # Errors
/// [`Error::Shape`] if the windows do not fit; errors of the device.
pub fn max_pool1d(x: &Tensor, geometry: Pool1dGeometry) -> Result<Tensor> {
    let y = max_pool("max_pool1d>max_pool1d_with_indices", &line("max_pool1d", x)?, geometry.of_pictures())?;
    squeeze(&y, 2)
}

/// The mean of each window of `[n, c, l]`, padding counted. Saves its input.
///
/// # Errors
/// [`Error::Shape`] if the windows do not fit; errors of the device.
pub fn avg_pool1d(x: &Tensor, geometry: Pool1dGeometry) -> Result<Tensor> {
    let _op = context::op("avg_pool1d");
    let y = avg_pool2d(&line("avg_pool1d", x)?, geometry.of_pictures())?;
    squeeze(&y, 2)
}

/// The mean of `output` equal parts of `[n, c, l]`. Saves its input, unless there is one part.
///
/// # Errors
/// [`Error::Shape`] if `l` is not a multiple of `output`; errors of the device.
pub fn adaptive_avg_pool1d(x: &Tensor, output: usize) -> Result<Tensor> {
    let _op = context::op("adaptive_avg_pool1d");
    let y = adaptive_avg_pool2d(&line("adaptive_avg_pool1d", x)?, [1, output])?;
    squeeze(&y, 2)
}
