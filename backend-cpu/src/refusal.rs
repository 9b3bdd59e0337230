//! What a family answers where it has no kernel.

use memcore::backend::KernelCall;
use memcore::error::{Error, Result};

/// The answer for a kernel or type that a family does not have.
pub(crate) fn unsupported(call: &KernelCall) -> Result<()> {
    Err(Error::Unsupported { backend: "cpu".into(), kernel: call.name(), dtype: call.dtype() })
}
