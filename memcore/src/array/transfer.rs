//! From one device to another.

use super::Array;
use crate::context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::ScopeId;

impl Array {
    /// The values on another device; this very array on the same one.
    ///
    /// The other device's memory is taken first. A view with gaps is made contiguous here before it moves, as PyTorch does between devices that
    /// do not see each other's memory; anything else moves as it lies, strides and all. The bytes go through the host, and are counted on both
    /// sides ([`Counters`](crate::device::Counters)). The two devices' locks are never held together.
    ///
    /// # Errors
    /// [`Error::NoValues`] when one of the two computes nothing and the other does: there would be nothing to move, or nothing left of it; as
    /// [`Array::empty`] on the other device; those of the backends.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device().is_same(device) {
            return Ok(self.clone());
        }
        if self.device().computes() != device.computes() {
            let without = if device.computes() { self.device() } else { device };
            return Err(Error::NoValues { device: without.name().into(), op: "to_device" });
        }
        let out = {
            // Scopes are numbered by each device's own ledger.
            let _scope = context::scope(ScopeId::default());
            Self::empty_for(device, self.dims(), &[self.layout()], self.dtype())?
        };
        let dense = if self.layout().is_dense() { self.clone() } else { self.contiguous()? };
        self.device().count_moved(device, dense.nbytes());
        if device.computes() {
            let (from, to) = (dense.operand().region, out.operand().region);
            let mut bytes = vec![0; from.len as usize];
            self.device().download(from, &mut bytes)?;
            device.upload(&bytes, to)?;
        }
        Ok(out)
    }
}
