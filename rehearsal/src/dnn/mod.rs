//! cuDNN. All calls succeed. Execution plans are those of the wheel's own library (`library.rs`, `graphs.rs`), which is
//! asked without a card; if it cannot be asked, their workspaces have the size in the settings. Other workspaces that are
//! not documented are 0. What was not asked is logged once.

mod graphs;
mod handles;
mod library;
mod made_up;
mod properties;
mod recurrent;

use std::ffi::c_int;

pub(crate) use graphs::take_last_plan;

/// `CUDNN_STATUS_SUCCESS` and others, from cuDNN 9.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const BAD_PARAM: c_int = 2000;

/// Status of a function that wrote a result.
pub(crate) fn status(written: crate::answer::Answer) -> c_int {
    written.map_or(BAD_PARAM, |()| SUCCESS)
}
