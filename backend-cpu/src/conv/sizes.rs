//! Sizes of a convolution.

use memcore::backend::Operand;
use memcore::backend::kernel::Conv2dGeometry;

/// Sizes of one convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Channels and outputs of one group.
    pub(super) channels: usize,
    pub(super) outputs: usize,
    pub(super) input: [usize; 2],
    pub(super) window: [usize; 2],
    pub(super) output: [usize; 2],
    pub(super) geometry: Conv2dGeometry,
}

impl Sizes {
    /// Reads the sizes of an input `[n, c, h, w]`, a weight `[o, c/groups, kh, kw]` and an output `[n, o, oh, ow]`.
    pub(super) fn new(geometry: Conv2dGeometry, x: &Operand, weight: &Operand, y: &Operand) -> Self {
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

    /// Returns the number of rows of the matrix of patches: channels of a group times positions of the window.
    pub(super) fn patch(&self) -> usize {
        self.channels * self.window[0] * self.window[1]
    }
}
