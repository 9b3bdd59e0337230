//! What the experiment finds.

use super::law::Law;
use super::runs::Run;

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Found {
    /// One device each, one batch size.
    pub(super) fresh: Vec<Run>,
    /// Several batch sizes on one device, the model built anew for each.
    pub(super) orders: Vec<Run>,
    /// One model that sees changing batches.
    pub(super) changing: Option<Run>,
    /// One pass over the same examples for each batch size.
    pub(super) epochs: Vec<Run>,
    pub(super) law: Option<Law>,
}
