//! `snapshot`, `tune`, `explain`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::{OutputArgs, ReplayArgs, values};

/// `vramlab snapshot`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

/// What to do with a snapshot.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// What is held and by whom, segment by segment; the peak of the trace; what is left over.
    #[command(after_help = "Example: who holds the memory, and what grows from step to step?\n  \
            vramlab snapshot show snapshot.pickle --top 20")]
    Show(ShowArgs),
    /// What a second snapshot holds that a first does not, by stack.
    #[command(after_help = "Example: before and after an epoch\n  \
            vramlab snapshot diff before.pickle after.pickle")]
    Diff(DiffArgs),
    /// Pickle to JSON and back: both open at pytorch.org/memory_viz, nothing is lost.
    #[command(after_help = "Example: a snapshot that other programs can read\n  \
            vramlab snapshot convert snapshot.pickle snapshot.json")]
    Convert(ConvertArgs),
    /// The trace again, under other settings and policies; checked against the recording first.
    #[command(after_help = "Example: what would expandable segments have taken?\n  \
            vramlab snapshot replay snapshot.pickle --compare caching,expandable")]
    Replay(Box<ReplayArgs>),
}

/// `vramlab snapshot show`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// What torch.cuda.memory._dump_snapshot or `train --snapshot` wrote: a pickle or JSON, packed by gzip or not.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which device [default: the one with the longest trace].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// How many stacks and segments to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab snapshot diff`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The first snapshot.
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The second.
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Which device [default: the one with the longest trace in AFTER].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// How many stacks to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab snapshot convert`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// The snapshot: a pickle or JSON, packed by gzip or not.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where to; `-` for standard output (JSON).
    #[arg(value_name = "OUT")]
    pub out: crate::destination::Destination,
    /// What to write [default: as OUT ends: .json, or .pickle].
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: Option<SnapshotFormat>,
}

/// How a snapshot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotFormat {
    /// Python's, protocol 4.
    Pickle,
    /// JSON of the same structure.
    Json,
}

/// `vramlab tune`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// A snapshot with a trace, or any recording that `replay` reads.
    #[arg(value_name = "SNAPSHOT")]
    pub file: PathBuf,
    /// Of a snapshot: which device [default: the one with the longest trace].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// Memory of the device (8GiB, 512MiB, bytes) [default: as recorded].
    #[arg(long, value_name = "SIZE", value_parser = lab::bytes::parse_memory)]
    pub memory_limit: Option<u64>,
    /// Share of it that the process may use, as set_per_process_memory_fraction sets it; collection needs one.
    #[arg(long, value_name = "F", value_parser = values::fraction)]
    pub memory_fraction: Option<f64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab explain`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The message, with anything around it, or a file (a log: its end is read); `-` or nothing: standard input.
    #[arg(value_name = "TEXT|FILE")]
    pub text: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}
