//! What a profile adds to the tensors that the mathematics wants.

use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dWeightGrad};
use memcore::backend::{KernelCall, Operand, Region, SegmentId};
use memcore::profile::{Convolution, Profile};
use memcore::{DType, Device, Layout};

/// Scratch memory of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvScratch {
    /// What the backend asks for.
    Backend,
    /// The unfolded picture of one example: `4·C·k·k·h·w`.
    Im2col,
    /// A fixed size.
    Fixed(u64),
}

/// Temporaries and workspaces beyond the tensors themselves.
#[derive(Clone)]
pub struct Rules {
    /// Bytes that the library of matrix products keeps from its first use on, once for each thread.
    pub gemm_workspace: u64,
    /// The same of the library with epilogues.
    pub epilogue_workspace: u64,
    /// What convolutions take.
    pub conv: ConvScratch,
    /// The squared error keeps a buffer of full size, as PyTorch's does.
    pub wide_mse: bool,
    device: Device,
}

impl Rules {
    /// What a device's profile says; `None` when its allocator is not the one that the prediction knows.
    pub fn of(device: &Device) -> Option<Self> {
        let Profile { gemm_workspace_bytes, gemm_epilogue_workspace_bytes, convolution, torch_temporaries, .. } =
            device.profile();
        let conv = match *convolution {
            Convolution::Backend => ConvScratch::Backend,
            Convolution::Native => ConvScratch::Im2col,
            Convolution::Cudnn { workspace_bytes } => ConvScratch::Fixed(workspace_bytes),
        };
        (device.allocator_name() == "caching").then(|| Self {
            gemm_workspace: *gemm_workspace_bytes,
            epilogue_workspace: *gemm_epilogue_workspace_bytes,
            conv,
            wide_mse: *torch_temporaries,
            device: device.clone(),
        })
    }

    /// What the backend asks for to run a convolution (`gradient`: of its weight) of these sizes.
    pub(super) fn backend_scratch(&self, gradient: bool, x: &[usize], weight: &[usize], padding: usize) -> u64 {
        let geometry = Conv2dGeometry { padding: [padding; 2], ..Conv2dGeometry::default() };
        let operand = |dims: &[usize]| {
            let layout = Layout::contiguous(dims).ok()?;
            let region = Region { segment: SegmentId(0), offset: 0, len: 4 * layout.numel() as u64 };
            Some(Operand { region, dtype: DType::F32, layout })
        };
        let side = |i: usize| (x[i] + 2 * padding + 1).saturating_sub(weight[i]);
        let (Some(x_operand), Some(w), Some(y)) =
            (operand(x), operand(weight), operand(&[x[0], weight[0], side(2), side(3)]))
        else {
            return 0;
        };
        let call: KernelCall = if gradient {
            Conv2dWeightGrad { geometry, x: x_operand, grad: y, out: w, workspace: None }.into()
        } else {
            let bias = operand(&[weight[0]]);
            Conv2d { geometry, x: x_operand, weight: w, bias, out: y, workspace: None }.into()
        };
        self.device.backend().workspace_bytes(&call)
    }
}
