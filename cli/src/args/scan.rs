//! `-L` and `-P`: the same command over a range of values.

use std::path::PathBuf;

use clap::ArgAction;

use super::Part;

/// What is to be scanned.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scan")]
pub(crate) struct ScanArgs {
    /// Run once for each value of an option (of `run`: of a size, too; of `rehearse`: of {NAME} in the command, or of the variable env:NAME): -L batch 32,64,128. Several: every combination.
    #[arg(short = 'L', long, value_names = ["NAME", "VALUES"], num_args = 2, action = ArgAction::Append,
        allow_negative_numbers = true)]
    pub parameter_list: Vec<String>,
    /// Run for each value of an option from MIN to MAX: -P batch 32 128 -D 32.
    #[arg(short = 'P', long, value_names = ["NAME", "MIN", "MAX"], num_args = 3, action = ArgAction::Append,
        allow_negative_numbers = true)]
    pub parameter_scan: Vec<String>,
    /// Step of the -P before it [default: 1].
    #[arg(short = 'D', long, value_name = "STEP", action = ArgAction::Append)]
    pub parameter_step_size: Vec<String>,
    /// Go on with a scan that was interrupted: take the points that are done in its --json, and run the others.
    #[arg(long = "continue", value_name = "RESULTS.json")]
    pub go_on: Option<PathBuf>,
    /// Do part I of N only, for one machine of several: of a scan every N-th combination, of `run` every N-th experiment. `auto` takes both from a
    /// Slurm array, auto/N the number from an indexed job of Kubernetes. `vramlab report` puts the parts together.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Part>,
}
