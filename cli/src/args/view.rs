//! Flags of `view`, which looks at a recording on the terminal.

use std::path::PathBuf;

/// `vramlab view`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ViewArgs {
    /// A snapshot (torch.cuda.memory._dump_snapshot) or the events of a run (--events), gzip-compressed or not. With a result of the same run (--json)
    /// the limit is drawn, too.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Number of the device of a snapshot [default: the one that ran out of memory, else the one with most reserved].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}
