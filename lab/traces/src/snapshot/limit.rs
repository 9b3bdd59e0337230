//! Limits of a process below what its card has.

use super::model::{Snapshot, TraceEvent};

/// PyTorch asks the driver for a multiple of this for a large request.
const SEGMENT_STEP: u64 = 2 << 20;

/// PyTorch asks the driver for at least this for a request of more than 1 MiB, and for less for a smaller one. Expandable segments grow by multiples of it.
const LARGE_SEGMENT: u64 = 20 << 20;

/// True if a card had room for a request that failed, so that the process may use a share of the card only
/// (`torch.cuda.set_per_process_memory_fraction`). Both in bytes; `expandable`: segments may be expandable. Seen on an H200 with torch 2.11.
pub fn card_had_room(requested: u64, free_on_device: u64, expandable: bool) -> bool {
    let step = if expandable { LARGE_SEGMENT } else { SEGMENT_STEP };
    requested.checked_next_multiple_of(step).is_some_and(|bytes| free_on_device >= bytes.max(LARGE_SEGMENT))
}

impl Snapshot {
    /// True if the card had room for the request of this [`Action::Oom`](super::Action::Oom); see [`card_had_room`]. Without settings in the file segments
    /// may be expandable.
    pub fn card_had_room(&self, failed: &TraceEvent) -> bool {
        let expandable = self.settings.as_ref().is_none_or(|settings| settings.expandable_segments);
        card_had_room(failed.bytes, failed.address, expandable)
    }
}

#[cfg(test)]
mod tests {
    use super::card_had_room;

    #[test]
    fn a_segment_of_the_driver_has_to_fit() {
        const MIB: u64 = 1 << 20;
        assert!(!card_had_room(16 * MIB, 19 * MIB, false));
        assert!(card_had_room(16 * MIB, 20 * MIB, false));
        assert!(!card_had_room(31 * MIB, 31 * MIB, false));
        assert!(card_had_room(31 * MIB, 32 * MIB, false));
        // Pages of an expandable segment.
        assert!(!card_had_room(31 * MIB, 39 * MIB, true));
        assert!(card_had_room(31 * MIB, 40 * MIB, true));
        assert!(!card_had_room(u64::MAX, u64::MAX, false));
    }
}
