//! cuDNN. All calls succeed. Workspaces that are not documented are 0; those of execution plans have the size in the
//! settings. Both are logged once.

mod graphs;
mod handles;
mod recurrent;
mod recurrent_sizes;

use std::ffi::c_int;

/// `CUDNN_STATUS_SUCCESS` and others, from cuDNN 9.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const BAD_PARAM: c_int = 2000;

/// Status of a function that wrote a result.
pub(crate) fn status(written: crate::answer::Answer) -> c_int {
    written.map_or(BAD_PARAM, |()| SUCCESS)
}
