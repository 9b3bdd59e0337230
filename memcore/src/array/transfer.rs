//! Copies an array from one device to another.

use super::Array;
use crate::context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::ScopeId;

impl Array {
    /// Returns the values on another device, or the same array if it is on that device already.
    ///
    /// The other device's memory is allocated first. A view with gaps is made contiguous here before it is copied, as PyTorch does between
    /// devices without peer access. Any other array keeps its strides. The bytes go through the host, and are counted on both sides
    /// ([`Counters`](crate::device::Counters)). The two devices' locks are never held at the same time.
    ///
    /// # Errors
    /// [`Error::NoValues`] if one of the two devices computes nothing and the other one does: there would be no values to copy, or they
    /// would be lost; as [`Array::empty`] on the other device; errors of the backends.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device().is_same(device) {
            return Ok(self.clone());
        }
        if self.device().computes() != device.computes() {
            let without = if device.computes() { self.device() } else { device };
            return Err(Error::NoValues { device: without.name().into(), op: "to_device" });
        }
        let out = {
            // Each device's own ledger numbers the scopes.
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
