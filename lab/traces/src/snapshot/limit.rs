//! Limits of a process below what its card has.

use super::model::{Snapshot, TraceEvent};

/// PyTorch asks the driver for a multiple of this for a large request.
const SEGMENT_STEP: u64 = 2 << 20;

/// PyTorch asks the driver for at least this for a request of more than 1 MiB, and for less for a smaller one. Expandable segments grow by multiples of it.
const LARGE_SEGMENT: u64 = 20 << 20;

/// True if a card had room for a request that failed, so that the process may use a share of the card only
/// (`torch.cuda.set_per_process_memory_fraction`), or a limit of the driver holds. Both in bytes; `expandable`: segments may be expandable. Seen on an H200 with torch 2.11.
pub fn card_had_room(requested: u64, free_on_device: u64, expandable: bool) -> bool {
    let step = if expandable { LARGE_SEGMENT } else { SEGMENT_STEP };
    requested.checked_next_multiple_of(step).is_some_and(|bytes| free_on_device >= bytes.max(LARGE_SEGMENT))
}

/// Why a request failed. All in bytes; `free_in_reserved`: what PyTorch had reserved and no tensor used; `expandable`: see [`card_had_room`].
///
/// - `limited`: the card had room, so a limit below it refused the request.
/// - `fragmented`: enough was free, but not in one piece.
/// - `full`: less was free than was requested.
pub fn why_it_failed(requested: u64, free_on_device: u64, free_in_reserved: u64, expandable: bool) -> &'static str {
    if card_had_room(requested, free_on_device, expandable) {
        "limited"
    } else if requested <= free_on_device.saturating_add(free_in_reserved) {
        "fragmented"
    } else {
        "full"
    }
}

impl Snapshot {
    /// True if the card had room for the request of this [`Action::Oom`](super::Action::Oom); see [`card_had_room`]. Without settings in the file segments
    /// may be expandable.
    pub(super) fn card_had_room(&self, failed: &TraceEvent) -> bool {
        card_had_room(failed.bytes, failed.address, self.may_be_expandable())
    }

    /// See [`why_it_failed`]; for an [`Action::Oom`](super::Action::Oom).
    pub fn why_it_failed(&self, failed: &TraceEvent, free_in_reserved: u64) -> &'static str {
        why_it_failed(failed.bytes, failed.address, free_in_reserved, self.may_be_expandable())
    }

    fn may_be_expandable(&self) -> bool {
        self.settings.as_ref().is_none_or(|settings| settings.expandable_segments)
    }
}
