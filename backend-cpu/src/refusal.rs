//! The answer of a family that does not have a kernel.

use memcore::backend::KernelCall;
use memcore::error::{Error, Result};

/// Returns the error for a kernel or type that a family does not have.
pub(crate) fn unsupported(call: &KernelCall) -> Result<()> {
    Err(Error::Unsupported { backend: "cpu".into(), kernel: call.name(), dtype: call.dtype() })
}
