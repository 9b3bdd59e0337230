//! What a profile adds to the tensors that the mathematics wants.

use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dWeightGrad};
use memcore::backend::{KernelCall, Operand, Region, SegmentId};
use memcore::profile::{Convolution, Profile};
use memcore::{Array, DType, Device, Layout};

use super::Shelf;

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
    /// What a device's profile says; `None` when its allocator is not the one that the prediction knows, or its profile takes workspaces for
    /// each product anew.
    pub fn of(device: &Device) -> Option<Self> {
        let Profile {
            gemm_workspace_bytes,
            gemm_epilogue_workspace_bytes,
            convolution,
            torch_temporaries,
            keeps_workspaces,
            ..
        } = device.profile();
        let conv = match *convolution {
            Convolution::Backend => ConvScratch::Backend,
            Convolution::Native => ConvScratch::Im2col,
            Convolution::Cudnn { workspace_bytes } => ConvScratch::Fixed(workspace_bytes),
        };
        (device.allocator_name() == "caching" && *keeps_workspaces).then(|| Self {
            gemm_workspace: *gemm_workspace_bytes,
            epilogue_workspace: *gemm_epilogue_workspace_bytes,
            conv,
            wide_mse: *torch_temporaries,
            device: device.clone(),
        })
    }

    /// As [`Rules::of`], and `None` also when the allocator's settings make it behave otherwise than the prediction expects: a fresh device is
    /// tried with some requests, and left empty.
    ///
    /// # Errors
    /// Those of the device, but for its memory being too small for the trial.
    pub fn tried(fresh: &Device) -> crate::error::Result<Option<Self>> {
        let Some(rules) = Self::of(fresh) else { return Ok(None) };
        let as_expected = match as_expected(fresh) {
            Err(memcore::Error::OutOfMemory(_)) => false,
            other => other?,
        };
        fresh.empty_cache();
        Ok(as_expected.then_some(rules))
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

/// Requests that the options of the allocator treat differently: odd sizes, both pools, made-to-measure segments, reuse with a rest.
const TRIAL_BYTES: [u64; 8] = [513, 700_000, 1_048_577, 1_200_000, 3_000_000, 9_500_000, 12_582_913, 22_020_097];

fn as_expected(device: &Device) -> memcore::Result<bool> {
    let mut shelf = Shelf::default();
    let mut same = true;
    let mut held = Vec::new();
    for round in 0..2 {
        for bytes in TRIAL_BYTES {
            let array = Array::empty(device, &[(bytes >> round) as usize], DType::U8)?;
            held.push((array, shelf.take(bytes >> round).0));
            let stats = device.stats();
            same &= stats.allocated_bytes.all.current == shelf.allocated();
            same &= stats.reserved_bytes.all.current == shelf.reserved();
        }
        for (array, block) in held.drain(..) {
            drop(array);
            shelf.free(block);
        }
        same &= device.stats().inactive_split_bytes.all.current == shelf.inactive_split();
    }
    Ok(same)
}
