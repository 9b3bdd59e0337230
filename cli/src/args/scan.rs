//! `-L` and `-P`: the same command over a range of values.

use std::path::PathBuf;

use clap::ArgAction;

use super::Part;

/// Options to scan.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scan")]
pub(crate) struct ScanArgs {
    /// Run once for each value of an option (for `run` also of a size; for `rehearse` of {NAME} in the command, or of the variable env:NAME): -L
    /// batch 32,64,128. Several options: every combination.
    #[arg(short = 'L', long, value_names = ["NAME", "VALUES"], num_args = 2, action = ArgAction::Append,
        allow_negative_numbers = true)]
    pub parameter_list: Vec<String>,
    /// Run once for each value of an option from MIN to MAX: -P batch 32 128 -D 32.
    #[arg(short = 'P', long, value_names = ["NAME", "MIN", "MAX"], num_args = 3, action = ArgAction::Append,
        allow_negative_numbers = true)]
    pub parameter_scan: Vec<String>,
    /// Step of the -P before it [default: 1].
    #[arg(short = 'D', long, value_name = "STEP", action = ArgAction::Append)]
    pub parameter_step_size: Vec<String>,
    /// Continue an interrupted scan: take the finished points from its --json, and run the others.
    #[arg(long = "continue", value_name = "RESULTS.json")]
    pub go_on: Option<PathBuf>,
    /// Run only part I of N, for one of several machines: of a scan every N-th combination, of `run` every N-th experiment. `auto` takes both
    /// numbers from a Slurm array, auto/N the index from an indexed job of Kubernetes. `vramlab report` joins the parts.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Part>,
}
