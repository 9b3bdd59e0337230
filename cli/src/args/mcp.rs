//! Flags of `mcp`.

use std::path::PathBuf;

/// `vramlab mcp`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// Read files below this folder alone: what leads out of it by `..` or a symbolic link is refused.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Also offer `rehearse`, which runs Python scripts below this folder, with all their effects.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "DIR")]
    pub allow_rehearse: Option<PathBuf>,
}
