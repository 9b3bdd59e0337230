//! Flags of `replay`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{HtmlArgs, OutputArgs, values};
use crate::destination::Destination;

/// `vramlab replay`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// An allocator trace (oracle-trace-1), a recorded training script (oracle-script-1), the output of `train --events` (vramlab-events-1), or a
    /// PyTorch snapshot with a trace (a pickle or JSON); gzip-compressed or not; `-` for standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Compare several policies, with the lower bound of any: caching,direct,planned, or `all`.
    #[arg(long, value_name = "POLICIES", value_enum, value_delimiter = ',', conflicts_with_all = ["allocator", "columns"])]
    pub compare: Vec<Compared>,
    /// Write the trace's own columns under this policy: the place of each allocation, the change of each statistic.
    #[arg(long, value_name = "FILE")]
    pub columns: Option<Destination>,
    /// Device of a snapshot [default: the one that ran out of memory, else the one with most reserved].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    #[command(flatten)]
    pub memory: ReplayMemoryArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
}

/// Device and allocator settings that replace the recorded ones.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory (as recorded, unless given)")]
pub(crate) struct ReplayMemoryArgs {
    /// Memory of the device (8GiB, 512MiB, bytes).
    #[arg(long, value_name = "SIZE", value_parser = lab::bytes::parse_memory)]
    pub memory_limit: Option<u64>,
    /// Share of the device's memory that the process may use, as set by set_per_process_memory_fraction.
    #[arg(long, value_name = "F", value_parser = values::fraction)]
    pub memory_fraction: Option<f64>,
    /// Settings of the caching allocator, in the syntax of PYTORCH_ALLOC_CONF.
    #[arg(long, value_name = "SETTINGS")]
    pub alloc_conf: Option<String>,
    /// Allocation policy; `planned` knows the whole run in advance.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    pub allocator: ReplayPolicy,
}

/// A policy that can be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayPolicy {
    /// PyTorch's caching allocator.
    #[default]
    Caching,
    /// Every request directly from the driver.
    Direct,
    /// Best fit with coalescing, as in TensorFlow and XLA.
    Bfc,
    /// The buddy system: powers of two.
    Buddy,
    /// Two-level segregated fit.
    Tlsf,
    /// The best placement found with knowledge of the whole run.
    Planned,
}

impl ReplayPolicy {
    /// Returns the name in `lab`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReplayPolicy::Caching => "caching",
            ReplayPolicy::Direct => "direct",
            ReplayPolicy::Bfc => "bfc",
            ReplayPolicy::Buddy => "buddy",
            ReplayPolicy::Tlsf => "tlsf",
            ReplayPolicy::Planned => "planned",
        }
    }
}

/// A policy that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compared {
    /// PyTorch's caching allocator, with the settings in force.
    Caching,
    /// PyTorch's caching allocator with expandable segments.
    Expandable,
    /// Every request directly from the driver.
    Direct,
    /// Best fit with coalescing.
    Bfc,
    /// The buddy system.
    Buddy,
    /// Two-level segregated fit.
    Tlsf,
    /// A plan made with knowledge of the whole run.
    Planned,
    /// All of these.
    All,
}

impl Compared {
    /// Returns the names in `lab`.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Compared::Caching => &["caching"],
            Compared::Expandable => &["expandable"],
            Compared::Direct => &["direct"],
            Compared::Bfc => &["bfc"],
            Compared::Buddy => &["buddy"],
            Compared::Tlsf => &["tlsf"],
            Compared::Planned => &["planned"],
            Compared::All => &lab::replay::POLICY_NAMES,
        }
    }
}
