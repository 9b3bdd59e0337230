//! Flags of `man`.

use std::path::PathBuf;

/// `vramlab man`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Whose page: `predict`, `snapshot show`; none: the program's.
    #[arg(value_name = "COMMAND", conflicts_with = "write")]
    pub command: Vec<String>,
    /// Write the pages of the program and of every command into this folder, which is made where it is missing.
    #[arg(long, value_name = "FOLDER")]
    pub write: Option<PathBuf>,
}
