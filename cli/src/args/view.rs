//! Flags of `view`, which looks at a recording on the terminal.

use std::path::PathBuf;

/// `vramlab view`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ViewArgs {
    /// What torch.cuda.memory._dump_snapshot or --events wrote, packed by gzip or not; a result of the same run (--json) beside it tells the limit.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Of a snapshot: which device [default: the one with the longest trace].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}
