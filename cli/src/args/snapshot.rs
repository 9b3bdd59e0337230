//! Flags of `snapshot`, `tune`, `explain`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Subcommand, ValueEnum};

use super::{HtmlArgs, OutputArgs, ReplayArgs, values};

/// `vramlab snapshot`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

/// What to do with a snapshot.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Show who held memory when it ran out, or at the peak: by line of the program, and for what; -v: stacks and segments.
    #[command(after_help = "Example: what did the convolutions hold?\n  \
            vramlab snapshot show snapshot.pickle --match conv2d\n\
            Purposes with a question mark are guessed from stacks and lives.")]
    Show(ShowArgs),
    /// Show what a second snapshot holds that a first one does not, by stack.
    #[command(after_help = "Example: before and after an epoch\n  \
            vramlab snapshot diff before.pickle after.pickle")]
    Diff(DiffArgs),
    /// Convert a pickle to JSON or back: both open at pytorch.org/memory_viz, and nothing is lost.
    #[command(after_help = "Example: a snapshot that other programs can read\n  \
            vramlab snapshot convert snapshot.pickle snapshot.json")]
    Convert(ConvertArgs),
    /// Replay the trace under other settings and policies; checked against the recording first.
    #[command(after_help = "Example: what would expandable segments have taken?\n  \
            vramlab snapshot replay snapshot.pickle --compare caching,expandable")]
    Replay(Box<ReplayArgs>),
}

/// `vramlab snapshot show`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// A snapshot from torch.cuda.memory._dump_snapshot or `train --snapshot`: a pickle (by torch.save too) or JSON, gzip-compressed or not.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Number of the device [default: the one that ran out of memory, else the one with most reserved].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// Number of lines, stacks and segments to list [default: 6 lines, 10 of the others].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Consider only these entries of the trace, or this time since its first entry: 100..400, 0.5s..1.2s, ..200ms.
    #[arg(long, value_name = "FROM..TO")]
    pub range: Option<TraceRange>,
    /// Consider only memory with this in its stack: a line (train.py:7), a file or module (conv.py), a function, an operator (conv2d).
    #[arg(long = "match", value_name = "TEXT")]
    pub matching: Option<String>,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A part of a trace: by entries, or by microseconds since the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TraceRange {
    /// First and last entry.
    Entries(usize, usize),
    /// Start and end, in microseconds.
    Micros(i64, i64),
}

impl FromStr for TraceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range: expected FROM..TO, as 100..400, 0.5s..1.2s or ..200ms");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let timed = |text: &str| text.ends_with('s');
        if timed(from) || timed(to) {
            let micros = |text: &str, none: i64| match text {
                "" => Some(none),
                text => {
                    let (number, unit) = match text.strip_suffix("ms") {
                        Some(number) => (number, 1e3),
                        None => (text.strip_suffix('s')?, 1e6),
                    };
                    number
                        .parse::<f64>()
                        .ok()
                        .filter(|time| *time >= 0.0 && *time < 1e12)
                        .map(|time| (time * unit) as i64)
                }
            };
            let (from, to) = (micros(from, 0).ok_or_else(wrong)?, micros(to, i64::MAX).ok_or_else(wrong)?);
            return if from <= to { Ok(Self::Micros(from, to)) } else { Err(wrong()) };
        }
        let entry = |text: &str, none: usize| if text.is_empty() { Some(none) } else { text.parse().ok() };
        let (from, to) = (entry(from, 0).ok_or_else(wrong)?, entry(to, usize::MAX).ok_or_else(wrong)?);
        if from <= to { Ok(Self::Entries(from, to)) } else { Err(wrong()) }
    }
}

/// `vramlab snapshot diff`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The first snapshot.
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The second snapshot.
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    #[command(flatten)]
    pub shown: ComparedArgs,
}

/// What of two runs is compared, and where it is shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ComparedArgs {
    /// Number of the device [default: the fullest one of the second].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// Number of lines to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab diff`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunsArgs {
    /// The first run: a snapshot, or in quotes what follows `vramlab predict`.
    #[arg(value_name = "A")]
    pub one: OsString,
    /// The second run.
    #[arg(value_name = "B")]
    pub other: OsString,
    #[command(flatten)]
    pub shown: ComparedArgs,
}

/// `vramlab snapshot convert`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// The snapshot: a pickle (by torch.save too) or JSON, gzip-compressed or not.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Destination; `-` for standard output (JSON).
    #[arg(value_name = "OUT")]
    pub out: crate::destination::Destination,
    /// Format of OUT [default: by its ending, .json or .pickle].
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: Option<SnapshotFormat>,
}

/// Format of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotFormat {
    /// A Python pickle, protocol 4.
    Pickle,
    /// JSON with the same structure.
    Json,
}

/// `vramlab tune`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// A snapshot with a trace, or any recording that `replay` reads.
    #[arg(value_name = "SNAPSHOT")]
    pub file: PathBuf,
    /// Device of a snapshot [default: the one that ran out of memory, else the one with most reserved].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// Memory of the device (8GiB, 512MiB, bytes) [default: as recorded].
    #[arg(long, value_name = "SIZE", value_parser = lab::bytes::parse_memory)]
    pub memory_limit: Option<u64>,
    /// Share of the device's memory that the process may use, as set by set_per_process_memory_fraction; garbage collection needs one.
    #[arg(long, value_name = "F", value_parser = values::fraction)]
    pub memory_fraction: Option<f64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab explain`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The message, with any text around it, or a file (of a log, the end is read); `-` or nothing: standard input.
    #[arg(value_name = "TEXT|FILE")]
    pub text: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_entries_or_times() {
        let range = |text: &str| text.parse::<TraceRange>().ok();
        assert_eq!(range("100..400"), Some(TraceRange::Entries(100, 400)));
        assert_eq!(range("..7"), Some(TraceRange::Entries(0, 7)));
        assert_eq!(range("0.5s..1.2s"), Some(TraceRange::Micros(500_000, 1_200_000)));
        assert_eq!(range("..200ms"), Some(TraceRange::Micros(0, 200_000)));
        assert_eq!(range("3ms.."), Some(TraceRange::Micros(3_000, i64::MAX)));
        for wrong in ["", "7", "7..3", "1..2s", "as..", "-1s..", "nans..", "2s..1s"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}
