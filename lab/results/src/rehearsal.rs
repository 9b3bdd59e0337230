//! What a script took on a card that is not there (`vramlab-rehearsal-1`).

use lab_base::bands::Basis;
use lab_base::section::Tries;
use serde::{Deserialize, Serialize};

use super::on_card::OnCard;
use super::rehearsal_growth::RehearsedGrowth;
use super::what_if::WhatIfResult;

/// A rehearsal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsalResult {
    /// The command.
    pub command: Vec<String>,
    /// The card.
    pub gpu: RehearsedGpu,
    /// The started ranks, if only some of many were; null if the command started its own.
    #[serde(default)]
    pub world: Option<RehearsedWorld>,
    /// The release of PyTorch; null if the script did not import it.
    pub torch: Option<String>,
    /// True if it fits with the workspaces that were counted (`exact_to`: others may take more); null if the run ended before that was known, or if memory grows and did not run out (`growth` of the ranks).
    pub fits: Option<bool>,
    /// Three figures of the process on the fullest card, with their parts; of what it did so far, or with enough memory if it ran out. `Perhaps`: the card
    /// lies between the lower and the upper one.
    #[serde(flatten)]
    pub on_card: OnCard,
    /// True if a whole step was seen, the script did not fail, and nothing unknown, and nothing that differs from a card, can have changed a
    /// size.
    pub exact: bool,
    /// Bytes by which the most that is allocated may be off (what is reserved may be off by more); 0 if exact, null if nothing bounds it, or if no whole step was seen.
    #[serde(default)]
    pub exact_to: Option<u64>,
    /// What may have changed a size; empty if no whole step was seen.
    #[serde(default)]
    pub inexact: Vec<Inexact>,
    /// Why the run ended: `steps`, `seen`, `time`, `end` (the script's own), `interrupted`.
    pub stopped: String,
    /// The script's exit code if it ended by itself; 128 plus the signal if a signal ended it.
    pub script_exit: Option<i32>,
    /// The exception that ended the script.
    pub exception: Option<String>,
    /// How often the script was run: twice if it compiled, and the second run counts.
    pub runs: u32,
    /// What the script takes on a card with enough memory: after running out, it was run again there.
    #[serde(default)]
    pub with_memory_enough: Option<RehearsedNeeds>,
    /// What other settings of the allocator would do, by replay; null if nothing was recorded.
    #[serde(default)]
    pub what_if: Option<WhatIfResult>,
    /// What makes it fit, if it does not; null if nothing was rehearsed for that.
    #[serde(default)]
    pub tries: Option<Tries>,
    /// What stands for downloads: weights without contents, tokenizers.
    #[serde(default)]
    pub made_up: Vec<String>,
    /// What the script wanted from a network and did not get.
    #[serde(default)]
    pub asked: Vec<String>,
    /// Activities that were not seen, and may take more memory.
    pub not_reached: Vec<String>,
    /// Phases of the script, in the order in which they began, as on the fullest card, with enough memory if it ran out; empty unless they were asked for.
    #[serde(default)]
    pub phases: Vec<RehearsedPhase>,
    /// Processes on a card, by rank.
    pub ranks: Vec<RehearsedRank>,
    /// Reads of unknown values, and assumptions, by place.
    pub unknown_reads: Vec<UnknownRead>,
    /// Ways in which the library differed from a card.
    pub not_as_on_a_card: Vec<NotAsOnACard>,
    /// Files and messages that were withheld.
    pub withheld: Vec<String>,
    /// Number of them; the list may be shorter.
    pub withheld_count: u64,
    /// What really changed in the working folder, in folders that the command names, and at the withheld paths, with what happened to it.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Paths that processes tried to change past the library's copies: the system refused it, as for a read-only file system. And signals
    /// to processes outside of the run, as `signal 9 to process 123 (python)`.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Addresses beyond this machine that processes connected to; and programs of this machine that are not of the run, as
    /// `127.0.0.1:8080` or `unix:/run/docker.sock`.
    #[serde(default)]
    pub contacted: Vec<String>,
    /// How the user's files were protected.
    #[serde(default)]
    pub protection: RehearsedProtection,
    /// The folder that keeps them; null if they were thrown away.
    pub kept_in: Option<String>,
    /// What could not be determined, and why.
    pub problems: Vec<String>,
    /// File of PyTorch's snapshot.
    pub snapshot: Option<String>,
}

/// How the user's files were protected from the script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedProtection {
    /// `namespace` and `filter`: no process of the run could change them. `landlock`: none could but for modes, owners, times and attributes.
    /// `library`: those that loaded the library could not.
    pub way: String,
    /// Why no better way works here, and what this way does not cover.
    pub lacks: Vec<String>,
}

/// Some ranks of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedWorld {
    /// Number of ranks that train together.
    pub size: u32,
    /// Those that were started.
    pub started: Vec<u32>,
}

/// The card.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedGpu {
    /// Name that programs see.
    pub name: String,
    /// Number of these cards.
    pub count: usize,
    /// Bytes of each.
    pub total_bytes: u64,
    /// Bytes that each process takes before its first tensor.
    pub context_bytes: u64,
    /// Compute capability.
    pub capability: String,
}

impl RehearsedGpu {
    /// Ten times the compute capability.
    pub(super) fn ten_times_capability(&self) -> Option<u32> {
        self.capability.replace('.', "").parse().ok()
    }

    /// Bytes that are left of each for what PyTorch reserves.
    pub fn room(&self) -> u64 {
        self.total_bytes.saturating_sub(self.context_bytes)
    }
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
    /// What was held when memory ran out, else at the peak of requested bytes, by line of the script, most first.
    pub at_peak: Vec<AtPeak>,
    /// The same by purpose; null if nothing said.
    pub by_category: Option<PeakShares>,
    /// Whether memory grows from step to step; null without steps or without a recording.
    #[serde(default)]
    pub growth: Option<RehearsedGrowth>,
    /// The most page-locked memory of the host that the process had: pinned for batches, saved tensors or offloaded states. Not pageable memory.
    #[serde(default)]
    pub host_locked: u64,
    /// The most managed memory that it had, as paged optimizers take: it lies on the host or on the card.
    #[serde(default)]
    pub host_managed: u64,
}

/// The most that one phase of a script took. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedPhase {
    /// `load` (until the first optimizer is made), `train`, `evaluate`, `generate`, `save`, `resume`.
    pub name: String,
    /// The most that PyTorch had allocated.
    pub peak_allocated: u64,
    /// The most that it had reserved.
    pub peak_reserved: u64,
    /// True if that fits, with what a process takes besides; null if it fits perhaps.
    pub fits: Option<bool>,
    /// The line whose allocation reached the peak; null if none is known.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// PyTorch's function there.
    pub operator: Option<String>,
}

/// The first time that memory ran out. Bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedOom {
    /// Bytes requested.
    pub requested: u64,
    /// Bytes that PyTorch had allocated.
    pub allocated: u64,
    /// Bytes that it had reserved.
    pub reserved: u64,
    /// The script's line.
    #[serde(rename = "where")]
    pub place: String,
    /// Steps that were done.
    pub steps: u64,
    /// Bytes left on the card.
    #[serde(default)]
    pub free_on_device: u64,
    /// Bytes that PyTorch had reserved and no tensor used.
    #[serde(default)]
    pub free_in_reserved: u64,
    /// The largest piece of that; null if it is not known.
    #[serde(default)]
    pub largest_free: Option<u64>,
    /// `full`: less was free than was requested; `fragmented`: enough was, but not in one piece; `limited`: the card had room.
    #[serde(default)]
    pub verdict: String,
}

/// What a script takes with enough memory. Bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RehearsedNeeds {
    /// Memory of the other card.
    pub total_bytes: u64,
    /// True if it was enough: if not, the script needs even more.
    pub fits: Option<bool>,
    /// Why that run ended, as in `stopped`.
    pub stopped: String,
    /// Steps of an optimizer.
    pub steps: u64,
    /// The most that PyTorch had allocated, on the fullest card.
    pub peak_allocated: u64,
    /// The most that it had reserved.
    pub peak_reserved: u64,
    /// How much more that is, with the CUDA context, than the card has; 0 if only fragmentation keeps it from fitting.
    pub missing: u64,
    /// What was held at the peak of requested bytes.
    pub at_peak: Vec<AtPeak>,
    /// The same by purpose.
    pub by_category: Option<PeakShares>,
    /// What decides how far a card may be from this run, which may have seen whole steps.
    #[serde(default)]
    pub basis: Option<Basis>,
}

/// Memory that a line of the script held at the peak of requested bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AtPeak {
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Allocations.
    pub count: u64,
    /// File and line; null if none is known.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// The innermost line outside of PyTorch: a library's, or the same.
    pub inside: Option<String>,
    /// PyTorch's function there that requested most.
    #[serde(default)]
    pub operator: Option<String>,
    /// Purpose: `parameter`, `gradient`, `optimizer`, `buffer`, `activation` (saved for the backward pass), `input`, `temporary`,
    /// `workspace`, `other`; null if nothing said.
    pub category: Option<String>,
}

/// Requested bytes at the peak, by purpose. `other`: what the script itself holds, and whatever no object of PyTorch names.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PeakShares {
    /// Parameters.
    pub parameter: u64,
    /// Their gradients.
    pub gradient: u64,
    /// What an optimizer keeps for them.
    pub optimizer: u64,
    /// Buffers of modules.
    #[serde(default)]
    pub buffer: u64,
    /// Saved for the backward pass, which freed it.
    #[serde(default)]
    pub activation: u64,
    /// Moved from the host.
    #[serde(default)]
    pub input: u64,
    /// Freed in the step that made it, before the end of the step: temporaries of operators.
    #[serde(default)]
    pub temporary: u64,
    /// Scratch that PyTorch keeps for cuBLAS.
    #[serde(default)]
    pub workspace: u64,
    /// Everything else.
    pub other: u64,
}

/// A read of an unknown value, or an assumption about it.
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
    /// What was read: `size`, `branch`, `number`, `log`, `contents`, `inside`, `outside`.
    pub kind: String,
    /// Bytes read.
    pub bytes: Option<u64>,
    /// What the script got.
    pub answer: Option<String>,
    /// Number of times.
    pub count: u64,
}

/// Something that may have changed a size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inexact {
    /// What is unknown, in words.
    pub what: String,
    /// Bytes of the peak that it can move; null without a bound.
    pub bytes: Option<u64>,
}

/// A way in which the library differed from a card; `docs/rehearsal-library.md` says what each event means.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NotAsOnACard {
    /// The event.
    pub event: String,
    /// The function, or a sentence.
    pub name: String,
}

/// Event of a script that asked about work of several streams. Its name is what the script reserves if such work is done as late as possible, in bytes,
/// once that was rehearsed.
pub const LATE_EVENTS: &str = "late_events";

/// Event of a communicator of NCCL. Its name is how many a process has for its card.
pub(super) const COMMUNICATORS: &str = "communicators";

/// Event of ranks that exchange something alone. Its name is to how many of them a process is connected.
pub(super) const PEERS: &str = "peers";

/// Event of several processes on one card. Its name is how many these were when they had the most at once, and their bytes with contexts.
pub const TOGETHER: &str = "together";

/// Event of a process that loads all modules of CUDA at once.
pub(super) const ALL_MODULES: &str = "all_modules";

/// Event of a workspace that cuDNN named without what cuBLASLt takes for itself. Its name is the bytes by which a card may differ.
pub const ASKED_IN_A_RANGE: &str = "asked_in_a_range";

/// The same of an engine that is made for one compute capability.
pub const ASKED_OF_ONE_CAPABILITY: &str = "asked_of_one_capability";

/// Events that do not affect the figures (`docs/rehearsal-library.md`).
const HARMLESS: [&str; 12] = [
    LATE_EVENTS,
    COMMUNICATORS,
    PEERS,
    ALL_MODULES,
    TOGETHER,
    "collective",
    "no_kernel_image",
    "addresses_not_reserved",
    "context_does_not_fit",
    "no_such_function",
    "profiler",
    "asked_size",
];

impl NotAsOnACard {
    /// True unless the figures are the same on a card.
    pub fn can_change_figures(&self) -> bool {
        !HARMLESS.contains(&self.event.as_str())
    }
}

impl PeakShares {
    /// Returns each share with its name.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("parameters", self.parameter),
            ("gradients", self.gradient),
            ("optimizer", self.optimizer),
            ("buffers", self.buffer),
            ("saved for backward", self.activation),
            ("inputs", self.input),
            ("temporaries", self.temporary),
            ("workspaces", self.workspace),
            ("other", self.other),
        ]
    }
}
