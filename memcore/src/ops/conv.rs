//! Two-dimensional convolution.

use smallvec::smallvec;

use super::autocast::lower;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::KernelCall;
use crate::backend::Operand;
use crate::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad, ReduceOp};
use crate::context;
use crate::device::{Device, WorkspaceKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::profile::Convolution;

/// `weight ⋆ x + bias`: `[n, c, h, w]` and `[o, c/groups, kh, kw]` give `[n, o, oh, ow]`. Saves input and weight.
///
/// # Errors
/// [`Error::Shape`] when they do not fit; those of the device.
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, geometry: Conv2dGeometry) -> Result<Tensor> {
    let ([n, c, h, w], [o, wc, kh, kw]) = (x.dims(), weight.dims()) else {
        return Err(Error::shape(
            "conv2d",
            format!("input {:?}, weight {:?}: four dimensions each", x.dims(), weight.dims()),
        ));
    };
    if *c != wc * geometry.groups || o % geometry.groups.max(1) != 0 {
        let detail = format!("{c} channels and weight {:?} in {} groups", weight.dims(), geometry.groups);
        return Err(Error::shape("conv2d", detail));
    }
    let [oh, ow] = geometry.output_size([*h, *w], [*kh, *kw])?;
    let bias = bias.map(lower).transpose()?;
    let (weight, x) = (&lower(weight)?, &lower(x)?);
    let bias = bias.as_ref();
    let _op = context::op("conv2d");
    let (input, filter) = (x.array().contiguous()?, weight.array().contiguous()?);
    let y = Array::empty(x.device(), &[*n, *o, oh, ow], x.dtype())?;
    let mut call = Conv2d {
        geometry,
        x: input.operand(),
        weight: filter.operand(),
        bias: bias.map(|b| b.array().operand()),
        out: y.operand(),
        workspace: None,
    };
    let pointwise = [*kh, *kw] == [1, 1] && geometry.stride == [1, 1] && geometry.padding == [0, 0];
    let algorithm = match NativeAlgorithm::of(geometry.groups, *c, weight.dims(), [oh, ow]) {
        NativeAlgorithm::Im2col { .. } if pointwise => NativeAlgorithm::Im2col { len: 0 },
        other => other,
    };
    let buffer = Buffer::new(x.device(), &KernelCall::from(call.clone()), algorithm, x.dtype())?;
    algorithm.take_workspaces(x.device(), *n * geometry.groups)?;
    call.workspace = buffer.operand();
    x.device().launch(call)?;
    drop(buffer);
    let inputs = [Some(x), Some(weight), bias];
    let inputs: smallvec::SmallVec<[&Tensor; 3]> = inputs.into_iter().flatten().collect();
    record(y, &inputs, |saved| {
        saved.save("input", x.array())?;
        saved.save("weight", weight.array())?;
        Ok(Box::new(ConvolutionBackward { geometry }))
    })
}

struct ConvolutionBackward {
    geometry: Conv2dGeometry,
}

impl Function for ConvolutionBackward {
    fn name(&self) -> &'static str {
        "ConvolutionBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let _op = context::op("convolution_backward");
        let (x, weight) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(Grads::new()) };
        let grad = grad.contiguous()?;
        let mut out: Grads = smallvec![None, None, None];
        let mut pass =
            Pass { geometry: self.geometry, x: x.contiguous()?, weight: weight.contiguous()?, grad, kept: None };
        let native = x.device().profile().convolution == Convolution::Native;
        let weight_first = native && pass.algorithm() == NativeAlgorithm::Depthwise;
        if needs.input(1) && weight_first {
            out[1] = Some(pass.weight_grad()?);
        }
        if needs.input(0) {
            out[0] = Some(pass.input_grad()?);
        }
        // PyTorch's native path makes the bias gradient before the weight's; with cuDNN it comes last.
        let bias_last = matches!(x.device().profile().convolution, Convolution::Cudnn { .. });
        if needs.input(2) && !bias_last {
            out[2] = Some(pass.bias_grad()?);
        }
        if needs.input(1) && !weight_first {
            out[1] = Some(pass.weight_grad()?);
        }
        if needs.input(2) && bias_last {
            out[2] = Some(pass.bias_grad()?);
        }
        saved.done();
        Ok(out)
    }
}

struct Pass {
    geometry: Conv2dGeometry,
    x: Array,
    weight: Array,
    grad: Array,
    /// The im2col buffer of PyTorch's native path, which both gradients use and which goes when all are made.
    kept: Option<Buffer>,
}

impl Pass {
    fn buffer(&mut self, call: &KernelCall) -> Result<Buffer> {
        let device = self.x.device();
        let buffer = match &self.kept {
            Some(kept) => kept.clone(),
            None => Buffer::new(device, call, self.algorithm(), self.x.dtype())?,
        };
        self.algorithm().take_workspaces(device, self.x.dims()[0] * self.geometry.groups)?;
        if device.profile().convolution == Convolution::Native {
            self.kept = Some(buffer.clone());
        }
        Ok(buffer)
    }

    fn algorithm(&self) -> NativeAlgorithm {
        let d = self.grad.dims();
        NativeAlgorithm::of(self.geometry.groups, self.x.dims()[1], self.weight.dims(), [d[2], d[3]])
    }

    fn input_grad(&mut self) -> Result<Array> {
        let out = self.x.empty_like()?;
        let (geometry, grad, weight) = (self.geometry, self.grad.operand(), self.weight.operand());
        let mut call = Conv2dInputGrad { geometry, grad, weight, out: out.operand(), workspace: None };
        let buffer = self.buffer(&KernelCall::from(call.clone()))?;
        call.workspace = buffer.operand();
        self.x.device().launch(call)?;
        Ok(out)
    }

    fn weight_grad(&mut self) -> Result<Array> {
        let out = self.weight.empty_like()?;
        let (geometry, x, grad) = (self.geometry, self.x.operand(), self.grad.operand());
        let mut call = Conv2dWeightGrad { geometry, x, grad, out: out.operand(), workspace: None };
        let buffer = self.buffer(&KernelCall::from(call.clone()))?;
        call.workspace = buffer.operand();
        self.x.device().launch(call)?;
        Ok(out)
    }

    fn bias_grad(&self) -> Result<Array> {
        self.grad.reduce(ReduceOp::Sum, &[0, 2, 3], false)
    }
}

/// How PyTorch convolves without cuDNN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NativeAlgorithm {
    /// A kernel of its own for one filter group per channel.
    Depthwise,
    /// A product with the columns of one sample, `len` elements of them: `channels·kh·kw·oh·ow`.
    Im2col { len: usize },
}

impl NativeAlgorithm {
    fn of(groups: usize, channels: usize, weight: &[usize], out: [usize; 2]) -> Self {
        if groups > 1 && groups == channels {
            return Self::Depthwise;
        }
        Self::Im2col { len: weight[1..].iter().product::<usize>() * out[0] * out[1] }
    }

    /// What the library takes for the products: one for each sample and group.
    fn take_workspaces(self, device: &Device, products: usize) -> Result<()> {
        match (device.profile().convolution, self) {
            (Convolution::Native, Self::Im2col { .. }) => device.product_workspaces(WorkspaceKind::Gemm, products),
            _ => Ok(()),
        }
    }
}

/// The temporary of a convolution call, as the profile says; freed when the last clone is dropped.
#[derive(Clone)]
struct Buffer {
    array: Option<Array>,
}

impl Buffer {
    fn new(device: &Device, call: &KernelCall, native: NativeAlgorithm, dtype: DType) -> Result<Self> {
        let bytes = |n: u64| Array::empty(device, &[n as usize], DType::U8);
        let array = match device.profile().convolution {
            Convolution::Backend => match device.native_workspace(call) {
                0 => None,
                n => Some(bytes(n)?.with_category(crate::memory::Category::Workspace)),
            },
            Convolution::Cudnn { workspace_bytes: 0 } => None,
            Convolution::Cudnn { workspace_bytes } => Some(bytes(workspace_bytes)?),
            Convolution::Native => match native {
                NativeAlgorithm::Depthwise => None,
                NativeAlgorithm::Im2col { len: 0 } => None,
                NativeAlgorithm::Im2col { len } => Some(Array::empty(device, &[len], dtype)?),
            },
        };
        Ok(Self { array })
    }

    fn operand(&self) -> Option<Operand> {
        self.array.as_ref().map(Array::operand)
    }
}
