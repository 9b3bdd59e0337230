//! What a script took on a card that is not there (`vramlab-rehearsal-1`).

use lab_base::section::Tries;
use serde::{Deserialize, Serialize};

use super::what_if::WhatIfResult;

/// A rehearsal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsalResult {
    /// What was run.
    pub command: Vec<String>,
    /// The card.
    pub gpu: RehearsedGpu,
    /// Where only some ranks of many were started; null where the command started its own.
    #[serde(default)]
    pub world: Option<RehearsedWorld>,
    /// The release of PyTorch; null where the script did not import it.
    pub torch: Option<String>,
    /// Whether it fits; null where the run ended before it could be said.
    pub fits: Option<bool>,
    /// Whether nothing that is not known, and nothing that is not as on a card, can have changed a size.
    pub exact: bool,
    /// Why the run ended: `steps`, `seen`, `time`, `end` (the script's own), `interrupted`.
    pub stopped: String,
    /// The script's exit code where it ended by itself; 128 and the signal where one ended it.
    pub script_exit: Option<i32>,
    /// The exception that ended the script.
    pub exception: Option<String>,
    /// How often the script was run: twice where it compiled, and the second run counts.
    pub runs: u32,
    /// What the script takes on a card with memory enough: it was run once more where it ran out.
    #[serde(default)]
    pub with_memory_enough: Option<RehearsedNeeds>,
    /// What other settings of the allocator would do, by replay; null where nothing was recorded.
    #[serde(default)]
    pub what_if: Option<WhatIfResult>,
    /// What makes it fit, where it does not; null where nothing was rehearsed for that.
    #[serde(default)]
    pub tries: Option<Tries>,
    /// What was not seen, and may take more than what was.
    pub not_reached: Vec<String>,
    /// A process on a card, by rank.
    pub ranks: Vec<RehearsedRank>,
    /// Reads of what is not known, and assumptions, by place.
    pub unknown_reads: Vec<UnknownRead>,
    /// What the library did not do as a card does.
    pub not_as_on_a_card: Vec<NotAsOnACard>,
    /// Files and messages that were withheld.
    pub withheld: Vec<String>,
    /// How many; the list may be shorter.
    pub withheld_count: u64,
    /// Where they were put; null where they were thrown away.
    pub kept_in: Option<String>,
    /// What could not be told, and why.
    pub problems: Vec<String>,
    /// Where PyTorch's snapshot was written.
    pub snapshot: Option<String>,
}

/// Some ranks of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedWorld {
    /// How many ranks train together.
    pub size: u32,
    /// Those that were started.
    pub started: Vec<u32>,
}

/// The card.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedGpu {
    /// What programs were told.
    pub name: String,
    /// How many of it.
    pub count: usize,
    /// Bytes of each.
    pub total_bytes: u64,
    /// Bytes that each process takes at once.
    pub context_bytes: u64,
    /// Compute capability.
    pub capability: String,
}

/// A process on a card. Bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedRank {
    /// Its rank.
    pub rank: u64,
    /// The number that the process has for the card.
    pub gpu: usize,
    /// The process.
    pub pid: u64,
    /// Steps of an optimizer.
    pub steps: u64,
    /// The most that PyTorch had allocated.
    pub peak_allocated: u64,
    /// The most that it had reserved.
    pub peak_reserved: u64,
    /// How often memory ran out.
    pub ooms: u64,
    /// The first time that it did.
    pub oom: Option<RehearsedOom>,
    /// What lived when memory ran out, else when most was asked for, by line of the script, most first.
    pub at_peak: Vec<AtPeak>,
    /// The same by what it was; null where nothing told.
    pub by_category: Option<PeakShares>,
}

/// The first time that memory ran out. Bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedOom {
    /// What was asked for.
    pub requested: u64,
    /// What PyTorch had allocated.
    pub allocated: u64,
    /// What it had reserved.
    pub reserved: u64,
    /// The script's line.
    #[serde(rename = "where")]
    pub place: String,
    /// Steps that were done.
    pub steps: u64,
    /// What was left on the card.
    #[serde(default)]
    pub free_on_device: u64,
    /// What PyTorch had reserved and nobody held.
    #[serde(default)]
    pub free_in_reserved: u64,
    /// The largest piece of that; null where it is not known.
    #[serde(default)]
    pub largest_free: Option<u64>,
    /// `full`: less was free than was asked for; `fragmented`: enough was, but not in one piece.
    #[serde(default)]
    pub verdict: String,
}

/// What a script takes with memory enough. Bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedNeeds {
    /// What the other card has.
    pub total_bytes: u64,
    /// Whether it was enough: if not, the script needs even more than this.
    pub fits: Option<bool>,
    /// Why that run ended, as `stopped`.
    pub stopped: String,
    /// Steps of an optimizer.
    pub steps: u64,
    /// The most that PyTorch had allocated, on the fullest card.
    pub peak_allocated: u64,
    /// The most that it had reserved.
    pub peak_reserved: u64,
    /// How much more that is, with the CUDA context, than the card has; 0 where it would fit but for the memory's pieces.
    pub missing: u64,
    /// What lived when most was asked for.
    pub at_peak: Vec<AtPeak>,
    /// The same by what it was for.
    pub by_category: Option<PeakShares>,
}

/// What a line of the script held when most was asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AtPeak {
    /// Bytes that were asked for.
    pub requested_bytes: u64,
    /// Allocations.
    pub count: u64,
    /// File and line; null where none is known.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// The innermost line outside of PyTorch: a library's, or the same.
    pub inside: Option<String>,
    /// PyTorch's function there that asked for most.
    #[serde(default)]
    pub operator: Option<String>,
    /// What they were for: `parameter`, `gradient`, `optimizer`, `activation` (saved for the backward pass), `input`,
    /// `other`; null where nothing told.
    pub category: Option<String>,
}

/// What was asked for at the peak, by what it was for. Bytes. `other`: what an operator needs for itself, workspaces,
/// buffers, what the script holds on to; they are not told apart.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PeakShares {
    /// Parameters.
    pub parameter: u64,
    /// Their gradients.
    pub gradient: u64,
    /// What an optimizer keeps for them.
    pub optimizer: u64,
    /// Saved for the backward pass, which freed it.
    #[serde(default)]
    pub activation: u64,
    /// Moved from the host.
    #[serde(default)]
    pub input: u64,
    /// Everything else.
    pub other: u64,
}

/// A read of what is not known, or an assumption about it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UnknownRead {
    /// The rank.
    pub rank: u64,
    /// `unknown_read`, `assumed`, `wrong_size`.
    pub event: String,
    /// The script's line.
    #[serde(rename = "where")]
    pub place: String,
    /// The innermost line outside of PyTorch.
    pub inside: String,
    /// The operator.
    pub operator: String,
    /// What was read: `size`, `branch`, `number`, `contents`, `inside`, `outside`.
    pub kind: String,
    /// How many bytes.
    pub bytes: Option<u64>,
    /// What the script got.
    pub answer: Option<String>,
    /// How often.
    pub count: u64,
}

/// What the library did not do as a card does; `docs/rehearse.md` says what each event means.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NotAsOnACard {
    /// The event.
    pub event: String,
    /// The function, or a sentence.
    pub name: String,
}

impl PeakShares {
    /// Returns each share with its name.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("parameters", self.parameter),
            ("gradients", self.gradient),
            ("optimizer", self.optimizer),
            ("saved for backward", self.activation),
            ("inputs", self.input),
            ("other", self.other),
        ]
    }
}
