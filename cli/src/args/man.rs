//! Flags of `man`.

use std::path::PathBuf;

/// `vramlab man`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Command of the page: `predict`, `snapshot show`; without one, the page of the program.
    #[arg(value_name = "COMMAND", conflicts_with = "write")]
    pub command: Vec<String>,
    /// Write the pages of the program and of every command into this folder, which is made if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    pub write: Option<PathBuf>,
}
