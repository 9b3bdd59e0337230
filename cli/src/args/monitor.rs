//! Flags of `monitor`, which shows running trainings and their memory.

use super::values;
use crate::destination::Destination;

/// `vramlab monitor`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MonitorArgs {
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
