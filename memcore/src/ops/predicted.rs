//! Operators whose memory is predicted, and whose values nothing computes.

use crate::device::Device;
use crate::error::{Error, Result};

/// Refuses an operator on a device that computes.
pub(super) fn predicted_only(op: &'static str, device: &Device) -> Result<()> {
    if device.computes() { Err(Error::invalid(op, "is predicted only: no backend computes it")) } else { Ok(()) }
}
