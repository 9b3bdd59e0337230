//! Flags of `monitor`, which shows running trainings and their memory.

use super::values;
use crate::destination::Destination;

/// `vramlab monitor`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MonitorArgs {
    /// Show only the training of this process.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Print one reading, then end.
    #[arg(long)]
    pub once: bool,
    /// Seconds between two readings.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = values::positive)]
    pub interval: f64,
    /// Write the readings as JSON; `-` for standard output. Without --once, one line for each reading, to standard output only.
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,
}
