//! Two-dimensional convolution and its gradients: by cuDNN if it is present and accepts them, else as implicit matrix
//! products.

use std::ffi::c_void;

use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad, Copy};
use memcore::backend::{Operand, Tf32};
use memcore::{DType, Layout, Result};

use crate::arguments::arguments;
use crate::cudnn::{Call, OPERANDS, Shape, Task, Which};
use crate::gemm::{self, Kernels, Sizes};
use crate::kernel::{Family, Kernel, PRODUCT, TENSOR_PRODUCT, kernels};
use crate::launch::{Context, Scratch};
use crate::walk::Divider;
use crate::{by_cudnn, elementwise};

arguments! { ARGUMENTS:
    struct ConvArgs {
        sizes: Sizes,
        /// Input, weight and result, or their gradients.
        x: *const c_void,
        weight: *const c_void,
        y: *const c_void,
        bias: *const c_void,
        out: *mut c_void,
        /// Channels of input and result: all, and those of a group; planes.
        channels: u32,
        group_channels: u32,
        height: u32,
        width: u32,
        outputs: u32,
        group_outputs: u32,
        out_height: u32,
        out_width: u32,
        window: [u32; 2],
        stride: [u32; 2],
        padding: [u32; 2],
        dilation: [u32; 2],
        /// Pixels of a plane and of a line, over which the columns (or the inner dimension) run; pixels of a window,
        /// and its width.
        by_plane: Divider,
        by_line: Divider,
        by_window: Divider,
        by_window_width: Divider,
        by_stride: [Divider; 2],
        by_dilation: [Divider; 2],
    }
}

kernels! { KERNELS in Conv:
    CONV2D: "conv2d" FLOATS PRODUCT => ConvArgs;
    CONV2D_TENSOR: "conv2d" FLOATS TENSOR_PRODUCT => ConvArgs;
    CONV2D_INPUT_GRAD: "conv2d_input_grad" FLOATS PRODUCT => ConvArgs;
    CONV2D_INPUT_GRAD_TENSOR: "conv2d_input_grad" FLOATS TENSOR_PRODUCT => ConvArgs;
    CONV2D_WEIGHT_GRAD: "conv2d_weight_grad" FLOATS PRODUCT => ConvArgs;
    CONV2D_WEIGHT_GRAD_TENSOR: "conv2d_weight_grad" FLOATS TENSOR_PRODUCT => ConvArgs;
}

impl ConvArgs {
    /// Replaces the sizes, to split the product into other parts.
    fn with(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }
}

/// Input, weight and result of a convolution, whichever of them is written.
struct Problem<'a> {
    geometry: &'a Conv2dGeometry,
    x: &'a Operand,
    weight: &'a Operand,
    y: &'a Operand,
    bias: Option<&'a Operand>,
    workspace: Option<&'a Operand>,
}

impl Problem<'_> {
    /// Returns rows, columns, inner size and groups of the product.
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

    /// True if the kernels on tensor cores have a bit for each line and position of the window, or do not use the bits
    /// because every tap meets every pixel.
    fn has_marks(&self, which: Which) -> bool {
        let [_, _, lines, places] = self.weight.dims()[..] else { return false };
        let all_meet = which != Which::InputGrad && self.geometry.padding == [0, 0];
        all_meet || (lines <= 32 && places <= 31)
    }

    fn args(&self, which: Which, addresses: [u64; 5]) -> ConvArgs {
        let (x, w, y, g) = (self.x.dims(), self.weight.dims(), self.y.dims(), self.geometry);
        let pair = |pair: [usize; 2]| pair.map(|v| v as u32);
        // The pixels that are counted: those of the input for the input's gradient, else those of the result.
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
            height: x[2] as u32,
            width: x[3] as u32,
            outputs: y[1] as u32,
            group_outputs: (w[0] / g.groups.max(1)) as u32,
            out_height: y[2] as u32,
            out_width: y[3] as u32,
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

    /// Describes the call for the library. `None` if the own kernels for single channels and small convolutions are meant
    /// to run.
    fn shape(&self, ctx: &Context<'_>, which: Which, workspace: Scratch) -> Option<Shape> {
        const FEW_PRODUCTS: usize = 1 << 12;
        let sizes = |operand: &Operand| <[usize; 4]>::try_from(operand.dims()).ok();
        let [m, n, k, groups] = self.sizes(which);
        let has_single_channels = groups > 1 && self.weight.dims()[1] == 1;
        if has_single_channels || m * n * k * groups <= FEW_PRODUCTS {
            return None;
        }
        let dtype = self.y.dtype;
        Some(Shape {
            which,
            dtype,
            tf32: dtype == DType::F32 && ctx.tf32.is_some_and(|allowed| allowed >= Tf32::Convolutions),
            x: sizes(self.x)?,
            weight: sizes(self.weight)?,
            y: sizes(self.y)?,
            geometry: *self.geometry,
            adds: self.bias.is_some(),
            workspace_bytes: workspace.bytes,
        })
    }

    /// True if the library rounds to 16 bits before the sum is complete. Measured with cuDNN 9.19 on an H100: before it adds to the result, in gradients
    /// of several groups, and in float16 in gradients of an input whose channels it cannot take by eights.
    fn rounds_twice(&self, which: Which) -> bool {
        let by_eights = [self.x, self.y].iter().all(|operand| operand.dims()[1].is_multiple_of(8));
        let of_input = which == Which::InputGrad && self.y.dtype == DType::F16 && !by_eights;
        let of_groups = which != Which::Forward && self.geometry.groups > 1;
        self.y.dtype != DType::F32 && (self.bias.is_some() || of_groups || of_input)
    }

    /// Queues the convolution, by the library or, where they are faster, by the own kernels. Returns false if the library does not
    /// accept it; the result is still to be written then.
    ///
    /// # Errors
    /// [`Error::Backend`](memcore::Error::Backend) if the library fails at a convolution that it had accepted.
    fn by_library(&self, ctx: &Context<'_>, which: Which, own: &dyn Fn() -> Result<()>) -> Result<bool> {
        let workspace = match self.workspace {
            Some(own) => Scratch { address: ctx.at(own)?, bytes: own.region.len },
            None => ctx.scratch,
        };
        if ctx.libraries.dnn.is_none() || self.rounds_twice(which) {
            return Ok(false);
        }
        let Some(shape) = self.shape(ctx, which, workspace) else { return Ok(false) };
        let mut places = [0; OPERANDS];
        places[..3].copy_from_slice(&[ctx.at(self.x)?, ctx.at(self.weight)?, ctx.at(self.y)?]);
        let call = Call { task: Task::Convolution(shape), places, workspace };
        by_cudnn::computes(ctx, Family::Conv, call, [&|| self.begin_with_bias(ctx), &|| Ok(())], own)
    }

    /// Writes the bias to the result, to which the library adds. In float32 that is before it rounds: an addition behind it would round twice.
    fn begin_with_bias(&self, ctx: &Context<'_>) -> Result<()> {
        let Some(bias) = self.bias else { return Ok(()) };
        let layout = Layout::strided(self.y.dims(), &[0, 1, 0, 0])?;
        elementwise::copy(ctx, &Copy { src: Operand { layout, ..*bias }, out: *self.y })
    }

    fn run(
        &self,
        ctx: &Context<'_>,
        [ordinary, tensor]: [Kernel<ConvArgs>; 2],
        which: Which,
        addresses: [u64; 5],
    ) -> Result<()> {
        let kernels = Kernels { ordinary, tensor: self.has_marks(which).then_some(tensor), tf32: Tf32::Convolutions };
        let args = self.args(which, addresses);
        let own = || gemm::run(ctx, kernels, self.y.dtype, args.sizes, |sizes| args.with(sizes));
        if self.by_library(ctx, which, &own)? { Ok(()) } else { own() }
    }
}

fn forward(k: &Conv2d) -> Problem<'_> {
    let (bias, workspace) = (k.bias.as_ref(), k.workspace.as_ref());
    Problem { geometry: &k.geometry, x: &k.x, weight: &k.weight, y: &k.out, bias, workspace }
}

fn input_grad(k: &Conv2dInputGrad) -> Problem<'_> {
    let workspace = k.workspace.as_ref();
    Problem { geometry: &k.geometry, x: &k.out, weight: &k.weight, y: &k.grad, bias: None, workspace }
}

fn weight_grad(k: &Conv2dWeightGrad) -> Problem<'_> {
    let workspace = k.workspace.as_ref();
    Problem { geometry: &k.geometry, x: &k.x, weight: &k.out, y: &k.grad, bias: None, workspace }
}

/// True if the kernels can count the sizes.
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
    forward(k).run(ctx, [CONV2D, CONV2D_TENSOR], Which::Forward, addresses)
}

/// The gradient of the input.
pub(crate) fn conv2d_input_grad(ctx: &Context<'_>, k: &Conv2dInputGrad) -> Result<()> {
    let addresses = [0, ctx.at(&k.weight)?, ctx.at(&k.grad)?, 0, ctx.at(&k.out)?];
    input_grad(k).run(ctx, [CONV2D_INPUT_GRAD, CONV2D_INPUT_GRAD_TENSOR], Which::InputGrad, addresses)
}

/// The gradient of the weight.
pub(crate) fn conv2d_weight_grad(ctx: &Context<'_>, k: &Conv2dWeightGrad) -> Result<()> {
    let addresses = [ctx.at(&k.x)?, 0, ctx.at(&k.grad)?, 0, ctx.at(&k.out)?];
    weight_grad(k).run(ctx, [CONV2D_WEIGHT_GRAD, CONV2D_WEIGHT_GRAD_TENSOR], Which::WeightGrad, addresses)
}
