//! What other settings of the allocator would do for a script, by replay of what it did.

use lab_results::WhatIfResult;
use lab_traces::snapshot::what_if;

use super::collect::{Rehearsed, open};
use super::request::RequestedCard;

/// Traces with more entries are left to `vramlab tune`.
const MAX_REPLAYED: usize = 500_000;

/// For the process that reserved most, on a card; `None` where nothing can be replayed.
pub(super) fn of(run: &Rehearsed, card: &RequestedCard) -> Option<WhatIfResult> {
    let (process, rank) = run.largest()?;
    let snapshot = open(&process.path).ok()?;
    if snapshot.trace(rank.gpu).len() > MAX_REPLAYED {
        return None;
    }
    let capacity = Some(card.total_bytes.saturating_sub(card.context_bytes));
    let found = what_if(&snapshot, rank.gpu, capacity).ok()?;
    Some(WhatIfResult::of(found, capacity))
}
