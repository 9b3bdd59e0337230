//! Flags of `watch`, which shows running trainings and their memory.

use std::ffi::OsString;
use std::path::PathBuf;

use super::values;
use crate::destination::Destination;

/// `vramlab watch`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MonitorArgs {
    /// Show only the training of this process.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Print one reading, then end.
    #[arg(long)]
    pub once: bool,
    /// Seconds between two readings: 1, or 10 between two lines of a command.
    #[arg(long, value_name = "SECONDS", value_parser = values::positive)]
    pub interval: Option<f64>,
    /// Write the readings as JSON; `-` for standard output. Without --once, one line for each reading, to standard output only. Of a command, one
    /// result at its end.
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,
    /// Of a command: a result of `predict --json`, to stand beside what is measured.
    #[arg(long, value_name = "FILE", requires = "command")]
    pub predicted: Option<PathBuf>,
    /// Of a command: where PyTorch's snapshot goes if memory runs out and the command fails.
    #[arg(long, value_name = "FILE", default_value = "vramlab-oom.pickle")]
    pub snapshot: PathBuf,
    /// A command that trains with PyTorch, to run and to watch: python, torchrun …, with its arguments. It runs for real. Ctrl-\ writes a snapshot of
    /// the next two steps; the exit code is the command's.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
