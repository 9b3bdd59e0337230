//! Replays of a script's allocations with other settings of PyTorch's allocator.

use lab_results::WhatIfResult;
use lab_traces::snapshot::what_if;

use super::collect::{Rehearsed, open};
use super::request::RequestedCard;

/// Maximum number of entries of a trace that is replayed. Longer traces are left to `vramlab tune`.
const MAX_REPLAYED: usize = 500_000;

/// Replays the process of [`Rehearsed::largest`] on a card. Returns `None` if it cannot be replayed.
pub(super) fn proposed(run: &Rehearsed, card: &RequestedCard) -> Option<WhatIfResult> {
    let (process, rank) = run.largest()?;
    let snapshot = open(&process.path).ok()?;
    if snapshot.trace(rank.gpu).len() > MAX_REPLAYED {
        return None;
    }
    let capacity = Some(card.room());
    let found = what_if(&snapshot, rank.gpu, capacity).ok()?;
    Some(WhatIfResult::new(found, capacity))
}
