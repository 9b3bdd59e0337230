//! Two-dimensional convolution and its gradients, as matrix products over tiles.
//!
//! A tile of the matrix of patches (`im2col`: a row per channel and kernel position, a column per output pixel) is gathered into
//! the thread's scratch, and one product of the GEMM library does the rest. No buffer of the size of an operand exists.
//!
//! - *Forward*: tasks are (image, group, tile of pixels); each writes its own part of the output.
//! - *Input gradient*: tasks are (image, group, block of channels); products give a tile of patch gradients, which are added to the block's planes.
//! - *Weight gradient*: where it is small, a fixed number of parts of the batch each have their own sum in the caller's scratch, added up in
//!   order afterwards; where it is large, tasks are blocks of its columns and go over the whole batch.
//!
//! How work is cut depends on sizes alone, so that results repeat to the bit.

mod backward;
mod forward;
mod patches;

pub(crate) use backward::{conv2d_input_grad, conv2d_weight_grad};
pub(crate) use forward::conv2d;

use memcore::backend::Operand;
use memcore::backend::kernel::Conv2dGeometry;

use crate::parallel::SCRATCH_BYTES;

/// Elements of a gathered tile that stay in a core's second cache.
const TILE_ELEMENTS: usize = 64 << 10;

/// Sizes of one convolution.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    images: usize,
    groups: usize,
    /// Channels and outputs of one group.
    channels: usize,
    outputs: usize,
    input: [usize; 2],
    window: [usize; 2],
    output: [usize; 2],
    geometry: Conv2dGeometry,
}

impl Sizes {
    /// Of an input `[n, c, h, w]`, a weight `[o, c/groups, kh, kw]` and an output `[n, o, oh, ow]`.
    fn new(geometry: Conv2dGeometry, x: &Operand, weight: &Operand, y: &Operand) -> Self {
        let (x, w, y) = (x.dims(), weight.dims(), y.dims());
        let groups = geometry.groups;
        Self {
            images: x[0],
            groups,
            channels: w[1],
            outputs: w[0] / groups,
            input: [x[2], x[3]],
            window: [w[2], w[3]],
            output: [y[2], y[3]],
            geometry,
        }
    }

    /// Pixels of an input plane.
    fn input_pixels(&self) -> usize {
        self.input[0] * self.input[1]
    }

    /// Pixels of an output plane.
    fn output_pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Rows of the matrix of patches: channels of a group times positions of the window.
    fn patch(&self) -> usize {
        self.channels * self.window[0] * self.window[1]
    }

    /// Whether a plane of the input is a row of the matrix of patches as it is.
    fn is_pointwise(&self) -> bool {
        let g = &self.geometry;
        self.window == [1, 1] && g.stride == [1, 1] && g.padding == [0, 0]
    }

    /// Rows and columns of a gathered tile, so that it, a block of weights and a block of results (of `outputs` rows) fit a scratch of
    /// elements of `size` bytes.
    fn tile(&self, size: usize) -> [usize; 2] {
        let quarter = SCRATCH_BYTES / size / 4;
        let rows = self.patch().min(512).min((quarter / self.outputs.max(1)).max(1));
        let pixels = (TILE_ELEMENTS / rows).max(64).min(2 * quarter / rows).min((quarter / self.outputs.max(1)).max(1));
        [rows, pixels.min(self.output_pixels()).max(1)]
    }
}
