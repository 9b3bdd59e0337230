//! Two-dimensional convolution and its gradients, as implicit matrix products.

use memcore::Result;
use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad};
use memcore::backend::{Operand, Tf32};

use crate::gemm::{self, Kernels, Sizes};
use crate::kernels::Kernel;
use crate::launch::Context;
use crate::walk::Divider;

/// `ConvArgs` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct ConvArgs {
    sizes: Sizes,
    x: u64,
    weight: u64,
    y: u64,
    bias: u64,
    out: u64,
    channels: u32,
    group_channels: u32,
    plane: [u32; 2],
    outputs: u32,
    group_outputs: u32,
    out_plane: [u32; 2],
    window: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    dilation: [u32; 2],
    by_plane: Divider,
    by_line: Divider,
    by_window: Divider,
    by_window_width: Divider,
    by_stride: [Divider; 2],
    by_dilation: [Divider; 2],
}

/// Which of the three products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Forward,
    InputGrad,
    WeightGrad,
}

/// Input, weight and result of a convolution, whichever of them is written.
struct Problem<'a> {
    geometry: &'a Conv2dGeometry,
    x: &'a Operand,
    weight: &'a Operand,
    y: &'a Operand,
}

impl Problem<'_> {
    /// Rows, columns, inner size and groups of the product.
    fn sizes(&self, which: Which) -> [usize; 4] {
        let (x, w, y, groups) = (self.x.dims(), self.weight.dims(), self.y.dims(), self.geometry.groups.max(1));
        let (outputs, window) = (w[0] / groups, w[2] * w[3]);
        match which {
            Which::Forward => [outputs, y[0] * y[2] * y[3], w[1] * window, groups],
            Which::InputGrad => [w[1], x[0] * x[2] * x[3], outputs * window, groups],
            Which::WeightGrad => [outputs, w[1] * window, y[0] * y[2] * y[3], groups],
        }
    }

    fn supports(&self, which: Which) -> bool {
        gemm::fits(self.sizes(which)) && [self.x, self.weight, self.y].iter().all(|o| o.numel() < 1 << 31)
    }

    /// Whether the kernels on tensor cores have a bit for each line and place of the window, or do not look at them, since every
    /// tap meets every pixel.
    fn has_marks(&self, which: Which) -> bool {
        let [_, _, lines, places] = self.weight.dims()[..] else { return false };
        let all_meet = which != Which::InputGrad && self.geometry.padding == [0, 0];
        all_meet || (lines <= 32 && places <= 31)
    }

    fn args(&self, which: Which, addresses: [u64; 5]) -> ConvArgs {
        let (x, w, y, g) = (self.x.dims(), self.weight.dims(), self.y.dims(), self.geometry);
        let pair = |pair: [usize; 2]| pair.map(|v| v as u32);
        // The pixels that are counted: those of the input for its gradient, else of the result.
        let pixels = if which == Which::InputGrad { [x[2], x[3]] } else { [y[2], y[3]] };
        let [address_x, weight, address_y, bias, out] = addresses;
        ConvArgs {
            sizes: Sizes::new(self.sizes(which)),
            x: address_x,
            weight,
            y: address_y,
            bias,
            out,
            channels: x[1] as u32,
            group_channels: w[1] as u32,
            plane: pair([x[2], x[3]]),
            outputs: y[1] as u32,
            group_outputs: (w[0] / g.groups.max(1)) as u32,
            out_plane: pair([y[2], y[3]]),
            window: pair([w[2], w[3]]),
            stride: pair(g.stride),
            padding: pair(g.padding),
            dilation: pair(g.dilation),
            by_plane: Divider::new((pixels[0] * pixels[1]) as u32),
            by_line: Divider::new(pixels[1] as u32),
            by_window: Divider::new((w[2] * w[3]) as u32),
            by_window_width: Divider::new(w[3] as u32),
            by_stride: pair(g.stride).map(Divider::new),
            by_dilation: pair(g.dilation).map(Divider::new),
        }
    }

    fn run(&self, ctx: &Context<'_>, [ordinary, tensor]: [Kernel; 2], which: Which, addresses: [u64; 5]) -> Result<()> {
        let kernels = Kernels { ordinary, tensor: self.has_marks(which).then_some(tensor), tf32: Tf32::Convolutions };
        let args = self.args(which, addresses);
        gemm::run(ctx, kernels, self.y.dtype, args.sizes, |sizes| ConvArgs { sizes, ..args })
    }
}

fn forward(k: &Conv2d) -> Problem<'_> {
    Problem { geometry: &k.geometry, x: &k.x, weight: &k.weight, y: &k.out }
}

fn input_grad(k: &Conv2dInputGrad) -> Problem<'_> {
    Problem { geometry: &k.geometry, x: &k.out, weight: &k.weight, y: &k.grad }
}

fn weight_grad(k: &Conv2dWeightGrad) -> Problem<'_> {
    Problem { geometry: &k.geometry, x: &k.x, weight: &k.out, y: &k.grad }
}

/// What the kernels can count.
pub(crate) fn supports(k: &Conv2d) -> bool {
    forward(k).supports(Which::Forward)
}

/// See [`supports`].
pub(crate) fn supports_input_grad(k: &Conv2dInputGrad) -> bool {
    input_grad(k).supports(Which::InputGrad)
}

/// See [`supports`].
pub(crate) fn supports_weight_grad(k: &Conv2dWeightGrad) -> bool {
    weight_grad(k).supports(Which::WeightGrad)
}

/// `out[n, o] = bias[o] + Σ_c weight[o, c] ⋆ x[n, c]`.
pub(crate) fn conv2d(ctx: &Context<'_>, k: &Conv2d) -> Result<()> {
    let addresses = [ctx.at(&k.x)?, ctx.at(&k.weight)?, 0, ctx.at_optional(&k.bias)?, ctx.at(&k.out)?];
    forward(k).run(ctx, [Kernel::Conv2d, Kernel::Conv2dTensor], Which::Forward, addresses)
}

/// The gradient for the input.
pub(crate) fn conv2d_input_grad(ctx: &Context<'_>, k: &Conv2dInputGrad) -> Result<()> {
    let addresses = [0, ctx.at(&k.weight)?, ctx.at(&k.grad)?, 0, ctx.at(&k.out)?];
    input_grad(k).run(ctx, [Kernel::Conv2dInputGrad, Kernel::Conv2dInputGradTensor], Which::InputGrad, addresses)
}

/// The gradient for the weight.
pub(crate) fn conv2d_weight_grad(ctx: &Context<'_>, k: &Conv2dWeightGrad) -> Result<()> {
    let addresses = [ctx.at(&k.x)?, 0, ctx.at(&k.grad)?, 0, ctx.at(&k.out)?];
    weight_grad(k).run(ctx, [Kernel::Conv2dWeightGrad, Kernel::Conv2dWeightGradTensor], Which::WeightGrad, addresses)
}
