//! cuDNN. Everything succeeds. Workspaces that are not documented are 0, those of execution plans as the settings say;
//! the log says so once.

mod graphs;
mod handles;
mod recurrent;

use std::ffi::c_int;

/// `CUDNN_STATUS_SUCCESS` and others, from cuDNN 9.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const BAD_PARAM: c_int = 2000;

/// The status of what a function wrote.
pub(crate) fn status(written: crate::answer::Answer) -> c_int {
    written.map_or(BAD_PARAM, |()| SUCCESS)
}
