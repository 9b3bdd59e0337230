//! What PyTorch's own convolutions allocate besides their results, by algorithm.

use crate::array::{Array, Format};
use crate::backend::kernel::Conv2dGeometry;
use crate::backend::{KernelCall, Operand};
use crate::context;
use crate::device::{Device, WorkspaceKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::profile::{Convolution, ConvolutionCase};

/// Allocates a part of `[n, c, …]` with the channels of one group.
pub(in crate::ops) fn group_of(x: &Array, groups: usize) -> Result<Array> {
    let mut dims = x.dims().to_vec();
    dims[1] /= groups;
    Array::empty(x.device(), &dims, x.dtype())
}

/// Makes the copy of a group's channels that PyTorch's native path makes. With one example, they are contiguous already.
pub(in crate::ops) fn group_copy(x: &Array, groups: usize) -> Result<Option<Array>> {
    if x.dims()[0] > 1 { context::within("clone", || group_of(x, groups)).map(Some) } else { Ok(None) }
}

/// Algorithm with which PyTorch convolves without cuDNN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum NativeAlgorithm {
    /// A separate kernel for one filter group per channel.
    Depthwise,
    /// A product with the columns of one sample, `len` elements: `channels·kh·kw·oh·ow`. A dilation has an operator of its own.
    Im2col { len: usize, dilated: bool },
    /// `Im2col` for each group. The results are joined.
    Grouped { len: usize, dilated: bool },
}

impl NativeAlgorithm {
    pub(in crate::ops) fn is_dilated(self) -> bool {
        matches!(self, Self::Im2col { dilated: true, .. } | Self::Grouped { dilated: true, .. })
    }

    pub(in crate::ops) fn choose(geometry: Conv2dGeometry, channels: usize, weight: &[usize], out: [usize; 2]) -> Self {
        let (groups, dilated) = (geometry.groups, geometry.dilation != [1, 1]);
        if groups > 1 && groups == channels {
            return Self::Depthwise;
        }
        let len = weight[1..].iter().product::<usize>() * out[0] * out[1];
        if groups > 1 { Self::Grouped { len, dilated } } else { Self::Im2col { len, dilated } }
    }

    /// Makes and returns the parts of each group of channels, as PyTorch's native path does before it joins the results. Empty without groups, or
    /// under a profile that works otherwise. Our kernels compute all groups in one call.
    pub(in crate::ops) fn parts_of_forward(
        self,
        x: &Array,
        groups: usize,
        [o, oh, ow]: [usize; 3],
    ) -> Result<Vec<Array>> {
        let mut parts = Vec::new();
        let (Self::Grouped { len, dilated }, Convolution::Native) = (self, x.device().profile().convolution) else {
            return Ok(parts);
        };
        let makers = if dilated { ["slow_conv_dilated2d", "resize_"] } else { ["resize_", "_slow_conv2d_forward"] };
        let library = if dilated { makers[0] } else { makers[1] };
        for _ in 0..groups {
            let copy = group_copy(x, groups)?;
            let empty = |maker, dims: &[usize]| context::within(maker, || Array::empty(x.device(), dims, x.dtype()));
            parts.push(empty(makers[0], &[x.dims()[0], o / groups, oh, ow])?);
            let columns = if len > 0 { Some(empty(makers[1], &[len])?) } else { None };
            context::within(library, || {
                x.device().product_workspaces(WorkspaceKind::Gemm, x.dims()[0])?;
                drop(columns);
                Ok::<_, Error>(())
            })?;
            context::within("_convolution", || drop(copy));
        }
        Ok(parts)
    }

    /// Takes the library's workspaces for the products: one for each sample and group.
    pub(in crate::ops) fn take_workspaces(self, device: &Device, products: usize) -> Result<()> {
        match (device.profile().convolution, self) {
            (Convolution::Native, Self::Im2col { .. }) => device.product_workspaces(WorkspaceKind::Gemm, products),
            _ => Ok(()),
        }
    }
}

/// Temporary of a convolution call, as the profile says. It is freed when the last clone is dropped.
#[derive(Clone)]
pub(in crate::ops) struct Buffer {
    array: Option<Array>,
}

impl Buffer {
    pub(in crate::ops) fn new(
        device: &Device,
        call: &KernelCall,
        library: Convolution,
        native: NativeAlgorithm,
        (dtype, format): (DType, Format),
    ) -> Result<Self> {
        let bytes = |n: u64| Array::empty(device, &[n as usize], DType::U8);
        let array = match library {
            Convolution::Backend => match device.native_workspace(call) {
                0 => None,
                n => Some(bytes(n)?.with_category(crate::memory::Category::Workspace)),
            },
            Convolution::Cudnn { workspace_bytes } => match cudnn_workspace(device, call, format, workspace_bytes)? {
                0 => None,
                n => Some(bytes(n)?),
            },
            Convolution::Native => match native {
                // The groups took their temporaries before.
                NativeAlgorithm::Depthwise | NativeAlgorithm::Grouped { .. } => None,
                NativeAlgorithm::Im2col { len: 0, .. } => None,
                NativeAlgorithm::Im2col { len, .. } => Some(Array::empty(device, &[len], dtype)?),
            },
        };
        Ok(Self { array })
    }

    pub(in crate::ops) fn operand(&self) -> Option<Operand> {
        self.array.as_ref().map(Array::operand)
    }
}

/// The workspace of a call of cuDNN: what it named for such a convolution, if it was asked, else the profile's.
fn cudnn_workspace(device: &Device, call: &KernelCall, format: Format, otherwise: u64) -> Result<u64> {
    let profile = device.profile();
    let Some(named) = &profile.convolution_workspaces else { return Ok(otherwise) };
    let Some((case, pass)) = ConvolutionCase::of_call(call, format == Format::ChannelsLast) else {
        return Ok(otherwise);
    };
    let bytes = named.bytes(case.clone(), pass)?;
    if bytes > 0 {
        named.note(device.with_ledger(|ledger| ledger.usage().n_alloc()), case, pass);
    }
    Ok(bytes)
}
