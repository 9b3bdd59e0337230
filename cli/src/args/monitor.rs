//! Flags of `monitor`, which shows running trainings and their memory.

use super::values;
use crate::destination::Destination;

/// `vramlab monitor`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MonitorArgs {
    /// Look once, then end.
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = values::positive)]
    pub interval: f64,
    /// Write the observations as JSON; `-` for standard output. Without --once, writes a line for each look, and to standard output only.
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,
}
