//! Transposed convolution in two dimensions: the same computation as the input gradient of a convolution.

use smallvec::smallvec;

use super::library::launch;
use super::record::recorded;
use super::transposed_size::transposed_size;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor};
use crate::backend::KernelCall;
use crate::backend::kernel::{BinaryOp, Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad, ReduceOp};
use crate::context;
use crate::device::WorkspaceKind;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::profile::Convolution;

/// The transpose of a convolution with this geometry: `[n, c, h, w]` and `[c, o, kh, kw]` give `[n, o, oh, ow]`, with
/// `oh = (h − 1)·stride − 2·padding + dilation·(kh − 1) + more + 1`. Saves input and weight.
///
/// Under a PyTorch profile without cuDNN, the temporaries are those of `slow_conv_transpose2d`: the columns of one sample, and ones for the bias.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; [`Error::Invalid`] for several groups, and if the profile has cuDNN, whose temporaries for it are not
/// recorded; errors of the device.
pub fn conv_transpose2d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: Conv2dGeometry,
    more: [usize; 2],
) -> Result<Tensor> {
    let ([n, c, h, w], [wc, o, kh, kw]) = (x.dims(), weight.dims()) else {
        let detail = format!("input {:?}, weight {:?}: four dimensions each", x.dims(), weight.dims());
        return Err(Error::shape("conv_transpose2d", detail));
    };
    if c != wc || bias.is_some_and(|bias| bias.dims() != [*o]) {
        let detail = format!("{c} channels, weight {:?}, bias {:?}", weight.dims(), bias.map(Tensor::dims));
        return Err(Error::shape("conv_transpose2d", detail));
    }
    if geometry.groups != 1 {
        return Err(Error::invalid("conv_transpose2d", "several groups are not supported"));
    }
    if let Convolution::Cudnn { .. } = x.device().profile().convolution {
        return Err(Error::invalid("conv_transpose2d", "vramlab does not support it with cuDNN"));
    }
    let dims = [*n, *o, outside(geometry, 0, *h, *kh, more)?, outside(geometry, 1, *w, *kw, more)?];
    if geometry.output_size([dims[2], dims[3]], [*kh, *kw])? != [*h, *w] {
        let detail = format!("{more:?} more elements than a stride of {:?} leaves open", geometry.stride);
        return Err(Error::shape("conv_transpose2d", detail));
    }
    let compute = |x: &Array, weight: &Array, bias: Option<&Array>| forward(x, weight, bias, geometry, dims);
    recorded("conv_transpose2d", [x, weight], bias, Backward { geometry }, compute)
}

/// Size of the result along one axis.
fn outside(geometry: Conv2dGeometry, axis: usize, size: usize, window: usize, more: [usize; 2]) -> Result<usize> {
    let (padding, steps) = (geometry.padding[axis], [geometry.stride[axis], geometry.dilation[axis]]);
    transposed_size(size, window, steps, padding, more[axis])
        .ok_or_else(|| Error::shape("conv_transpose2d", format!("a padding of {padding} leaves nothing of {size}")))
}

/// Allocates the columns of one sample, if the profile has them.
fn columns(x: &Array, weight: &Array, call: &KernelCall) -> Result<Option<Array>> {
    let device = x.device();
    if device.profile().convolution == Convolution::Native {
        let len = weight.dims()[1..].iter().product::<usize>() * x.dims()[2] * x.dims()[3];
        return Array::empty(device, &[len], x.dtype()).map(Some);
    }
    match device.native_workspace(call) {
        0 => Ok(None),
        bytes => Array::empty_as(device, &[bytes as usize], crate::DType::U8, Category::Workspace).map(Some),
    }
}

fn forward(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    geometry: Conv2dGeometry,
    dims: [usize; 4],
) -> Result<Array> {
    let (input, filter) = (x.contiguous()?, weight.contiguous()?);
    let y = Array::empty(x.device(), &dims, x.dtype())?;
    let mut call = Conv2dInputGrad {
        geometry,
        grad: input.operand(),
        weight: filter.operand(),
        out: y.operand(),
        workspace: None,
    };
    let columns = columns(&input, &filter, &KernelCall::from(call.clone()))?;
    let native = x.device().profile().convolution == Convolution::Native;
    let ones = match bias {
        Some(_) if native => Some(Array::ones(x.device(), &dims[2..], x.dtype())?),
        _ => None,
    };
    if native {
        let products = if bias.is_some() { 2 * dims[0] } else { dims[0] };
        x.device().product_workspaces(WorkspaceKind::Gemm, products)?;
    }
    call.workspace = columns.as_ref().map(Array::operand);
    launch(call, x, weight, &dims)?;
    if let Some(bias) = bias {
        y.binary_(BinaryOp::ADD, &bias.view(&[1, dims[1], 1, 1])?)?;
    }
    drop(ones);
    drop(columns);
    drop((input, filter));
    Ok(y)
}

struct Backward {
    geometry: Conv2dGeometry,
}

impl Function for Backward {
    fn name(&self) -> &'static str {
        "ConvolutionBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let _op = context::op("convolution_backward");
        let (x, weight) = (saved.get(0)?.contiguous()?, saved.get(1)?.contiguous()?);
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None, None];
        if needs.input(0) {
            out[0] = Some(self.input_grad(&x, &weight, &grad)?);
        }
        if needs.input(1) || needs.input(2) {
            let [weight, bias] = self.parameter_grads(&x, &weight, &grad, [needs.input(1), needs.input(2)])?;
            (out[1], out[2]) = (weight, bias);
        }
        drop((x, weight));
        saved.done();
        Ok(out)
    }
}

impl Backward {
    fn native(&self, x: &Array) -> bool {
        x.device().profile().convolution == Convolution::Native
    }

    /// True if the columns of a sample are the incoming gradient itself.
    fn is_plain(&self, weight: &Array) -> bool {
        let geometry = self.geometry;
        weight.dims()[2..] == [1, 1] && geometry.stride == [1, 1] && geometry.padding == [0, 0]
    }

    fn scratch(&self, x: &Array, weight: &Array, call: &KernelCall) -> Result<Option<Array>> {
        if self.native(x) && self.is_plain(weight) { Ok(None) } else { columns(x, weight, call) }
    }

    /// Makes the input gradient: the convolution of the incoming gradient.
    fn input_grad(&self, x: &Array, weight: &Array, grad: &Array) -> Result<Array> {
        let ordered = grad.contiguous()?;
        let out = x.empty_like()?;
        let (geometry, operand) = (self.geometry, ordered.operand());
        let mut call =
            Conv2d { geometry, x: operand, weight: weight.operand(), bias: None, out: out.operand(), workspace: None };
        let columns = self.scratch(x, weight, &KernelCall::from(call.clone()))?;
        if self.native(x) {
            x.device().product_workspaces(WorkspaceKind::Gemm, x.dims()[0])?;
        }
        call.workspace = columns.as_ref().map(Array::operand);
        launch(call, x, weight, grad.dims())?;
        drop(columns);
        Ok(out)
    }

    /// Makes the gradients of weight and bias. Both have their memory before either is computed, and the sums of the bias gradient run in parallel with the
    /// columns. Each part of the pass makes the incoming gradient contiguous for itself.
    fn parameter_grads(
        &self,
        x: &Array,
        weight: &Array,
        grad: &Array,
        wanted: [bool; 2],
    ) -> Result<[Option<Array>; 2]> {
        let of_weight = if wanted[0] { Some(weight.empty_like()?) } else { None };
        let channels = grad.dims()[1];
        let of_bias = if wanted[1] { Some(Array::empty(x.device(), &[channels], grad.dtype())?) } else { None };
        let ordered = grad.contiguous()?;
        let mut scratch = None;
        if let Some(out) = &of_weight {
            let (geometry, operand) = (self.geometry, ordered.operand());
            let mut call =
                Conv2dWeightGrad { geometry, x: operand, grad: x.operand(), out: out.operand(), workspace: None };
            scratch = self.scratch(x, weight, &KernelCall::from(call.clone()))?;
            if self.native(x) {
                x.device().product_workspaces(WorkspaceKind::Gemm, x.dims()[0])?;
            }
            call.workspace = scratch.as_ref().map(Array::operand);
            launch(call, x, weight, grad.dims())?;
        }
        if let Some(out) = &of_bias {
            context::within("sum", || ordered.reduce_over_into(ReduceOp::Sum, &[0, 2, 3], out))?;
        }
        drop(scratch);
        drop(ordered);
        Ok([of_weight, of_bias])
    }
}
