//! Saved values on the host between forward and backward: PyTorch's `torch.autograd.graph.save_on_cpu`.
//!
//! Every value that a node saves is copied, a parameter too, and one that two nodes save twice. The array on the device is freed with its last other holder.
//! Backward allocates each copy anew, all those of a node before it computes. (Measured with torch 2.11: `lab/tests/golden/offloaded.json.gz`.)

use std::sync::Arc;

use super::hooks::{Packed, SavedHooks, SavedHooksGuard};
use crate::array::Array;
use crate::context;
use crate::device::{Device, HostBlock, HostKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Keeps what is saved until the guard is dropped on the host, in memory of this kind.
pub fn save_on_cpu(kind: HostKind) -> SavedHooksGuard {
    SavedHooksGuard::new(Arc::new(SaveOnCpu(kind)))
}

struct SaveOnCpu(HostKind);

/// A value on the host.
struct OnHost {
    device: Device,
    layout: Layout,
    dtype: DType,
    /// The elements in row-major order; `None` of a device that computes nothing.
    bytes: Option<Vec<u8>>,
    _block: HostBlock,
}

impl SavedHooks for SaveOnCpu {
    fn pack(&self, array: Array) -> Result<Packed> {
        let device = array.device().clone();
        let kept = *array.layout();
        let layout = match self.0 {
            HostKind::Pinned => Layout::contiguous(array.dims())?,
            HostKind::Pageable if kept.is_dense() => kept,
            HostKind::Pageable => Layout::elementwise(array.dims(), &[&kept])?,
        };
        // PyTorch copies between host and device what has the same strides on both sides. Anything else it orders on the device first.
        let ordered = if kept.has_order_of(&layout) { array } else { context::within("copy_", || array.contiguous())? };
        let bytes = if device.computes() { Some(ordered.to_bytes()?) } else { None };
        let block = device.host().take(ordered.nbytes(), self.0);
        Ok(Box::new(OnHost { dtype: ordered.dtype(), device, layout, bytes, _block: block }))
    }

    fn unpack(&self, packed: &Packed) -> Result<Array> {
        let Some(OnHost { device, layout, dtype, bytes, .. }) = packed.downcast_ref::<OnHost>() else {
            return Err(Error::invalid("save_on_cpu", "a saved value of another kind"));
        };
        let array = context::within("_to_copy", || Array::empty_laid_out(device, *layout, *dtype))?;
        if let Some(bytes) = bytes {
            array.write_bytes_in_order(bytes)?;
        }
        Ok(array)
    }
}
