//! Comparison of a recording with its replay under the recorded settings.

use lab_base::figures::{both, counted, grouped, short};
use lab_traces::snapshot::Agreement;
use serde::{Deserialize, Serialize};

/// A figure of the recording, and of the replay.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Both {
    /// Figure of the recording.
    pub recorded: u64,
    /// Figure of the replay.
    pub replayed: u64,
}

/// Result of comparing a replay under the recorded settings with the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SelfCheck {
    /// True if nothing differs: every address is equal.
    pub exact: bool,
    /// True if as much memory is reserved as in the recording, all along. What other settings take can be told then.
    #[serde(default)]
    pub reserved_equal: bool,
    /// Number of segments in the recording at the end.
    pub segments: u64,
    /// Number of them that the replay has too, block by block.
    pub equal_segments: u64,
    /// Number of allocations, without those that failed and those from before the recording.
    pub allocations: u64,
    /// Number of allocations at the recorded address.
    pub placed: u64,
    /// Peak of reserved memory.
    pub peak_reserved: Both,
    /// Reserved memory at the end.
    pub final_reserved: Both,
    /// Number of allocations at addresses where the recording has no segment.
    #[serde(default)]
    pub outside: u64,
    /// Requests that failed.
    pub failed: Both,
    /// Number of allocations from before the recording.
    pub allocations_before: u64,
    /// True if the replay begins with these where they were; false if they are placed anew.
    #[serde(default)]
    pub resumed: bool,
}

impl From<&Agreement> for SelfCheck {
    fn from(found: &Agreement) -> Self {
        let both = |(recorded, replayed): (u64, u64)| Both { recorded, replayed };
        Self {
            exact: found.is_exact(),
            reserved_equal: found.reserved_is_equal(),
            segments: found.segments as u64,
            equal_segments: found.equal_segments as u64,
            allocations: found.allocations as u64,
            placed: found.placed as u64,
            peak_reserved: both(found.peak_reserved),
            final_reserved: both(found.final_reserved),
            outside: found.outside as u64,
            failed: both((found.failed.0 as u64, found.failed.1 as u64)),
            allocations_before: found.before as u64,
            resumed: found.resumed,
        }
    }
}

impl SelfCheck {
    /// True if what other settings take can be told from a replay.
    pub fn repeats(&self) -> bool {
        self.exact || self.reserved_equal
    }

    /// Formats it in two words, for answers that stand on it.
    pub(super) fn in_a_word(&self) -> &'static str {
        if self.exact { "its self-check is exact" } else { "its self-check: reserved memory is equal" }
    }

    /// Formats it in a line.
    pub fn in_short(&self) -> String {
        match self.exact {
            true => "Self-check: the recorded settings repeat the recording exactly.".into(),
            false if self.reserved_equal => format!(
                "Self-check: the recorded settings reserve as much as the recording, all along; {} of {} allocations lie elsewhere.",
                grouped(self.allocations.saturating_sub(self.placed), ' '),
                grouped(self.allocations, ' ')
            ),
            false if self.outside > 0 => format!("Self-check: {}: not exact.", self.gone()),
            false => format!(
                "Self-check: the recorded settings repeat {} of {} segments; peak reserved {} recorded, {} here: not exact.",
                self.equal_segments,
                self.segments,
                short(self.peak_reserved.recorded),
                short(self.peak_reserved.replayed)
            ),
        }
    }

    /// Says that the recording lacks segments.
    fn gone(&self) -> String {
        format!(
            "{} of {} allocations lie in segments that the snapshot no longer has, so what was reserved then is not known",
            grouped(self.outside, ' '),
            grouped(self.allocations, ' ')
        )
    }

    /// Formats it in a sentence.
    pub fn in_words(&self) -> String {
        let mut text = format!(
            "Self-check under the recorded settings: {} of {} segments are equal block by block, {} of {} allocations are \
             where they were; peak reserved {} recorded, {} here; reserved at the end {} recorded, {} here",
            self.equal_segments,
            self.segments,
            grouped(self.placed, ' '),
            grouped(self.allocations, ' '),
            both(self.peak_reserved.recorded),
            both(self.peak_reserved.replayed),
            both(self.final_reserved.recorded),
            both(self.final_reserved.replayed),
        );
        text += match (self.exact, self.reserved_equal) {
            (true, _) => ": exact, every address is equal.",
            (false, true) => ": reserved memory is equal after every allocation, not every address is.",
            (false, false) => ": not exact.",
        };
        if self.outside > 0 {
            text += &format!(" {}.", self.gone());
        }
        if self.allocations_before > 0 {
            let begun = if self.resumed {
                "PyTorch's allocator begins with them where they were (others place them anew)"
            } else {
                "they are placed anew"
            };
            text += &format!(
                " The trace begins in the middle of the run: {} lived before, and {begun}.",
                counted(self.allocations_before, "allocation")
            );
        }
        text
    }
}
