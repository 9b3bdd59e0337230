//! Measurements of the experiment.

use super::law::Law;
use super::runs::Run;

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Found {
    /// Runs with one batch size, each on a device of its own.
    pub(super) fresh: Vec<Run>,
    /// Runs with several batch sizes on one device; each size builds the model anew.
    pub(super) orders: Vec<Run>,
    /// Run of one model that sees changing batches.
    pub(super) changing: Option<Run>,
    /// Runs of one pass over the same examples, one for each batch size.
    pub(super) epochs: Vec<Run>,
    pub(super) law: Option<Law>,
}
