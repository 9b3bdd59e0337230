//! Two-dimensional convolution.

use smallvec::smallvec;

use super::algorithm::{Buffer, NativeAlgorithm, group_copy, group_of};
use super::library::{format_of, launch, library_of, workspace};
use super::record::recorded;
use crate::array::{Array, Format};
use crate::autograd::{Function, Grads, Needs, Saved, Tensor};
use crate::backend::KernelCall;
use crate::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad, ReduceOp};
use crate::context;
use crate::device::WorkspaceKind;
use crate::error::{Error, Result};
use crate::profile::Convolution;

/// `weight ⋆ x + bias`: `[n, c, h, w]` and `[o, c/groups, kh, kw]` give `[n, o, oh, ow]`. Saves input and weight.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, geometry: Conv2dGeometry) -> Result<Tensor> {
    convolution("conv2d", x, weight, bias, geometry, Convolved::Pictures)
}

/// What is convolved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Convolved {
    /// Pictures, whose format decides that of the result.
    Pictures,
    /// Sequences, as pictures of one row: PyTorch makes them contiguous first ("avoid accidentally going through NHWC", ATen's `Convolution.cpp`), and
    /// has the copy until the operator, or its gradient, ends.
    Sequences,
}

impl Convolved {
    /// Returns the input that the operator works on.
    fn input(self, x: &Array) -> Result<Array> {
        match self {
            Self::Pictures => Ok(x.clone()),
            Self::Sequences => x.contiguous(),
        }
    }
}

/// [`conv2d`] under the name of the operator that called it.
pub(in crate::ops) fn convolution(
    op: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: Conv2dGeometry,
    convolved: Convolved,
) -> Result<Tensor> {
    let ([n, c, h, w], [o, wc, kh, kw]) = (x.dims(), weight.dims()) else {
        return Err(Error::shape(
            op,
            format!("input {:?}, weight {:?}: four dimensions each", x.dims(), weight.dims()),
        ));
    };
    if *c != wc * geometry.groups || o % geometry.groups.max(1) != 0 {
        let detail = format!("{c} channels and weight {:?} in {} groups", weight.dims(), geometry.groups);
        return Err(Error::shape(op, detail));
    }
    let [oh, ow] = geometry.output_size([*h, *w], [*kh, *kw])?;
    let dims = [*n, *o, oh, ow];
    let compute = |x: &Array, weight: &Array, bias: Option<&Array>| {
        let input = convolved.input(x)?;
        convolve(&input, weight, bias, geometry, dims)
    };
    recorded(op, [x, weight], bias, ConvolutionBackward { geometry, convolved }, compute)
}

/// Computes the result, of sizes `out`, with the temporaries of the profile.
fn convolve(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    geometry: Conv2dGeometry,
    out: [usize; 4],
) -> Result<Array> {
    let library = library_of(x, weight, geometry);
    let format = format_of(library, [x, weight]);
    let cudnn = matches!(library, Convolution::Cudnn { .. });
    let input = x.in_format(format)?;
    // cuDNN's operator has its result before it copies a weight into the input's format.
    let early = if cudnn { None } else { Some(weight.in_format(format)?) };
    let [n, o, oh, ow] = out;
    let plain = geometry.stride == [1, 1] && geometry.padding == [0, 0] && geometry.dilation == [1, 1];
    let pointwise = weight.dims()[2..] == [1, 1] && plain;
    let algorithm = match NativeAlgorithm::choose(geometry, x.dims()[1], weight.dims(), [oh, ow]) {
        NativeAlgorithm::Im2col { dilated, .. } if pointwise => NativeAlgorithm::Im2col { len: 0, dilated },
        NativeAlgorithm::Grouped { dilated, .. } if pointwise => NativeAlgorithm::Grouped { len: 0, dilated },
        other => other,
    };
    let parts = algorithm.parts_of_forward(&input, geometry.groups, [o, oh, ow])?;
    let y = {
        let _op = context::op(match library {
            Convolution::Cudnn { .. } => "cudnn_convolution",
            _ if !parts.is_empty() => "cat",
            _ if algorithm.is_dilated() => "slow_conv_dilated2d",
            _ => "resize_",
        });
        Array::empty_in(x.device(), &out, x.dtype(), format)?
    };
    let filter = early.map_or_else(|| context::within("cudnn_convolution", || weight.in_format(format)), Ok)?;
    let mut call = Conv2d {
        geometry,
        x: input.as_row_major()?.operand(),
        weight: filter.as_row_major()?.operand(),
        bias: bias.map(Array::operand),
        out: y.as_row_major()?.operand(),
        workspace: None,
    };
    let [operator, columns] = match library {
        Convolution::Cudnn { .. } => ["cudnn_convolution"; 2],
        _ if algorithm.is_dilated() => ["slow_conv_dilated2d", "resize_"],
        _ => ["_slow_conv2d_forward"; 2],
    };
    let make = || Buffer::new(x.device(), &KernelCall::from(call.clone()), library, algorithm, (x.dtype(), format));
    let buffer = context::within(columns, make)?;
    context::within(operator, || algorithm.take_workspaces(x.device(), n * geometry.groups))?;
    call.workspace = buffer.operand();
    let copies = context::within(operator, || workspace(x, weight, &out))?;
    x.device().launch(call)?;
    drop(copies);
    context::within(operator, || drop(buffer));
    context::within("_convolution", || drop((parts, filter, input)));
    Ok(y)
}

struct ConvolutionBackward {
    geometry: Conv2dGeometry,
    convolved: Convolved,
}

impl Function for ConvolutionBackward {
    fn name(&self) -> &'static str {
        "ConvolutionBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let _op = context::op("convolution_backward");
        let (given, weight) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
        let x = self.convolved.input(&given)?;
        let library = library_of(&x, &weight, self.geometry);
        let cudnn = matches!(library, Convolution::Cudnn { .. });
        let incoming = grad.clone();
        // The depthwise kernel makes the gradient contiguous before the input; the product with columns makes it contiguous after the
        // input.
        let single = self.geometry.groups > 1 && self.geometry.groups == x.dims()[1];
        let format = format_of(library, [&x, &weight]);
        // The input's gradient makes its own copy of the weight with cuDNN, after its result.
        let filter_in_format = || if cudnn { Ok(weight.clone()) } else { weight.in_format(format) };
        let early = if single { None } else { Some((x.in_format(format)?, filter_in_format()?)) };
        // With cuDNN each gradient makes its own contiguous copy.
        let grad = match format {
            Format::ChannelsLast => context::within("_to_copy", || grad.suggesting(x.format()))?,
            Format::RowMajor if cudnn => grad,
            Format::RowMajor => grad.contiguous()?,
        };
        let (input, filter) = early.map_or_else(|| Ok::<_, Error>((x.in_format(format)?, filter_in_format()?)), Ok)?;
        let mut pass = Pass { geometry: self.geometry, library, format, x: input, weight: filter, grad, kept: None };
        let native = library == Convolution::Native;
        if let (true, NativeAlgorithm::Im2col { len, dilated: true }) = (native, pass.algorithm()) {
            let out = pass.dilated(len, needs)?;
            drop((pass, x));
            drop((given, weight));
            saved.done();
            return Ok(out);
        }
        let out = pass.gradients(&x, &incoming, needs)?;
        let Pass { x: input, weight: filter, grad: ordered, kept, .. } = pass;
        context::within(if native { "_slow_conv2d_backward" } else { "" }, || drop((kept, ordered)));
        drop((filter, input));
        drop(x);
        // Recomputed values are freed before the incoming gradient.
        drop((given, weight));
        saved.done();
        Ok(out)
    }
}

struct Pass {
    geometry: Conv2dGeometry,
    library: Convolution,
    /// The format of the gradients, and of all operands but the incoming gradient.
    format: Format,
    x: Array,
    weight: Array,
    grad: Array,
    /// The im2col buffer of PyTorch's native path. Both gradients use it. It is freed when all gradients are made.
    kept: Option<Buffer>,
}

impl Pass {
    /// Makes the gradients in PyTorch's order. `x` and `incoming` are the original input and gradient; the pass may have copies of them.
    fn gradients(&mut self, x: &Array, incoming: &Array, needs: Needs<'_>) -> Result<Grads> {
        let native = self.library == Convolution::Native;
        let parts = if native { self.parts_of_groups(needs)? } else { [const { Vec::new() }; 3] };
        let weight_first = native && self.algorithm() == NativeAlgorithm::Depthwise;
        let mut out: Grads = smallvec![None, None, None];
        if needs.input(1) && weight_first {
            out[1] = Some(self.weight_grad()?);
            // The copy of the input is freed as soon as the weight's gradient is made.
            self.x = x.clone();
        }
        if needs.input(0) {
            out[0] = Some(self.input_grad()?);
        }
        if weight_first {
            // The bias gradient sums the incoming gradient in its own layout.
            self.grad = incoming.clone();
        }
        // PyTorch's native path makes the bias gradient before the weight's. It comes last with cuDNN, and if the groups' gradients are
        // joined.
        let grouped = native && matches!(self.algorithm(), NativeAlgorithm::Grouped { .. });
        let bias_last = grouped || matches!(self.library, Convolution::Cudnn { .. });
        if needs.input(2) && !bias_last {
            out[2] = Some(self.bias_grad()?);
        }
        if needs.input(1) && !weight_first {
            out[1] = Some(self.weight_grad()?);
        }
        if self.format == Format::ChannelsLast {
            // The gradient in the input's format is freed before the bias gradient sums the incoming one.
            self.grad = incoming.clone();
        }
        if needs.input(2) && bias_last {
            out[2] = Some(self.bias_grad()?);
        }
        drop(parts);
        Ok(out)
    }

    fn buffer(&mut self, call: &KernelCall) -> Result<Buffer> {
        let device = self.x.device();
        let maker = if self.result_maker().is_empty() { "" } else { "resize_" };
        let buffer = match &self.kept {
            Some(kept) => kept.clone(),
            None => context::within(maker, || {
                Buffer::new(device, call, self.library, self.algorithm(), (self.x.dtype(), self.format))
            })?,
        };
        let products = self.x.dims()[0] * self.geometry.groups;
        context::within("_slow_conv2d_backward", || self.algorithm().take_workspaces(device, products))?;
        if self.library == Convolution::Native {
            self.kept = Some(buffer.clone());
        }
        Ok(buffer)
    }

    fn algorithm(&self) -> NativeAlgorithm {
        let d = self.grad.dims();
        NativeAlgorithm::choose(self.geometry, self.x.dims()[1], self.weight.dims(), [d[2], d[3]])
    }

    /// Makes the gradients as PyTorch's native path does with a dilation. The gradients of input, weight and bias are allocated first. Then each
    /// sample adds its part; its part of the bias gradient is a temporary.
    fn dilated(&self, len: usize, needs: Needs<'_>) -> Result<Grads> {
        let device = self.x.device();
        let input = if needs.input(0) { Some(self.x.empty_like()?) } else { None };
        let weight = if needs.input(1) { Some(self.weight.empty_like()?) } else { None };
        let bias = if needs.input(2) { Some(self.bias_zeros(1)?) } else { None };
        let columns = context::within("resize_", || Array::empty(device, &[len], self.x.dtype()))?;
        self.samples([input.is_some(), weight.is_some()], bias.as_ref())?;
        let copies = workspace(&self.x, &self.weight, self.grad.dims())?;
        let (geometry, grad, workspace) = (self.geometry, self.grad.operand(), Some(columns.operand()));
        if let Some(out) = &input {
            let (weight, out) = (self.weight.operand(), out.operand());
            device.launch(Conv2dInputGrad { geometry, grad, weight, out, workspace })?;
        }
        if let Some(out) = &weight {
            let (x, out) = (self.x.operand(), out.operand());
            device.launch(Conv2dWeightGrad { geometry, x, grad, out, workspace })?;
        }
        drop(copies);
        Ok(smallvec![input, weight, bias])
    }

    /// Makes a bias gradient of zeros, for one of `groups`.
    fn bias_zeros(&self, groups: usize) -> Result<Array> {
        Array::zeros(self.x.device(), &[self.grad.dims()[1] / groups], self.x.dtype())
    }

    /// Allocates the temporaries of the native path with a dilation for each sample: the workspace of a product for each of the two gradients
    /// that is required, and a sum over the sample's positions, which is added to the bias gradient.
    fn samples(&self, products: [bool; 2], bias: Option<&Array>) -> Result<()> {
        let products = products.into_iter().filter(|wanted| *wanted).count();
        for sample in 0..self.x.dims()[0] {
            if products > 0 {
                self.x.device().product_workspaces(WorkspaceKind::Gemm, products)?;
            }
            if let Some(bias) = bias {
                let grad = self.grad.narrow(0, sample, 1)?.narrow(1, 0, bias.numel())?;
                let sum = grad.reduce_made_by(Some("sum"), ReduceOp::Sum, &[0, 2, 3], false)?;
                bias.add_(&sum)?;
            }
        }
        Ok(())
    }

    /// Name of the operator that makes the gradients in PyTorch inside the backward operator; empty with cuDNN, where that operator makes them itself.
    fn result_maker(&self) -> &'static str {
        match (self.library, self.algorithm()) {
            (Convolution::Cudnn { .. }, _) => "",
            (_, NativeAlgorithm::Grouped { .. }) => "cat",
            _ => "resize_",
        }
    }

    /// Returns the incoming gradient in the layout that kernels need.
    fn ordered(&self) -> Result<Array> {
        if self.format == Format::ChannelsLast {
            return self.grad.in_format(self.format);
        }
        if self.grad.layout().is_contiguous() {
            return Ok(self.grad.clone());
        }
        context::within("clone", || self.grad.copied())
    }

    fn input_grad(&mut self) -> Result<Array> {
        let out = context::within(self.result_maker(), || self.x.empty_like_in(self.format))?;
        let filter = self.weight.in_format(self.format)?;
        let ordered = self.ordered()?.as_row_major()?;
        let (geometry, grad, weight) = (self.geometry, ordered.operand(), filter.as_row_major()?.operand());
        let mut call = Conv2dInputGrad { geometry, grad, weight, out: out.as_row_major()?.operand(), workspace: None };
        let buffer = self.buffer(&KernelCall::from(call.clone()))?;
        call.workspace = buffer.operand();
        launch(call, &self.x, &self.weight, self.grad.dims())?;
        Ok(out)
    }

    fn weight_grad(&mut self) -> Result<Array> {
        let ordered = self.ordered()?.as_row_major()?;
        let format = match (self.format, self.x.format(), self.grad.format()) {
            (Format::ChannelsLast, Format::RowMajor, Format::RowMajor) => Format::RowMajor,
            (format, ..) => format,
        };
        let out = context::within(self.result_maker(), || self.weight.empty_like_in(format))?;
        let (geometry, x, grad) = (self.geometry, self.x.as_row_major()?.operand(), ordered.operand());
        let mut call = Conv2dWeightGrad { geometry, x, grad, out: out.as_row_major()?.operand(), workspace: None };
        let buffer = self.buffer(&KernelCall::from(call.clone()))?;
        call.workspace = buffer.operand();
        launch(call, &self.x, &self.weight, self.grad.dims())?;
        Ok(out)
    }

    fn bias_grad(&self) -> Result<Array> {
        let native = self.library == Convolution::Native;
        let maker = (native && self.algorithm() != NativeAlgorithm::Depthwise).then_some(self.result_maker());
        let maker = maker.or(Some("sum"));
        self.grad.reduce_made_by(maker, ReduceOp::Sum, &[0, 2, 3], false)
    }

    /// Makes the parts of each group as PyTorch's native path does before it joins them: parts of the bias, the weight and the input
    /// gradient.
    fn parts_of_groups(&self, needs: Needs<'_>) -> Result<[Vec<Array>; 3]> {
        let mut parts = [const { Vec::new() }; 3];
        let NativeAlgorithm::Grouped { len, dilated } = self.algorithm() else { return Ok(parts) };
        let groups = self.geometry.groups;
        let device = self.x.device();
        let columns = || context::within("resize_", || Array::empty(device, &[len], self.x.dtype()));
        // The library takes a workspace for each sample's product.
        let library = "_slow_conv2d_backward";
        let workspaces =
            || context::within(library, || device.product_workspaces(WorkspaceKind::Gemm, self.x.dims()[0]));
        let part = |dims: &[usize]| context::within("resize_", || Array::empty(device, dims, self.x.dtype()));
        let mut weight_dims = self.weight.dims().to_vec();
        weight_dims[0] /= groups;
        for _ in 0..groups {
            let _grad = group_copy(&self.grad, groups)?;
            let _x = group_copy(&self.x, groups)?;
            if dilated {
                self.dilated_parts(len, &weight_dims, needs, &mut parts)?;
                continue;
            }
            let mut unfolded = None;
            if needs.input(0) {
                parts[2].push(context::within("resize_", || group_of(&self.x, groups))?);
                unfolded = Some(columns()?);
                workspaces()?;
            }
            if needs.input(2) {
                parts[0].push(part(&weight_dims[..1])?);
            }
            if needs.input(1) {
                parts[1].push(part(&weight_dims)?);
                if unfolded.is_none() {
                    unfolded = Some(columns()?);
                }
                workspaces()?;
            }
            context::within(library, || drop(unfolded));
        }
        Ok(parts)
    }
}

impl Pass {
    /// Makes the parts of one group as the native path with a dilation does.
    fn dilated_parts(
        &self,
        len: usize,
        weight_dims: &[usize],
        needs: Needs<'_>,
        parts: &mut [Vec<Array>; 3],
    ) -> Result<()> {
        let device = self.x.device();
        if needs.input(0) {
            parts[2].push(group_of(&self.x, self.geometry.groups)?);
        }
        if needs.input(1) {
            parts[1].push(Array::empty(device, weight_dims, self.x.dtype())?);
        }
        let bias = if needs.input(2) { Some(self.bias_zeros(self.geometry.groups)?) } else { None };
        let _columns = context::within("resize_", || Array::empty(device, &[len], self.x.dtype()))?;
        self.samples([needs.input(0), needs.input(1)], bias.as_ref())?;
        parts[0].extend(bias);
        Ok(())
    }
}
