//! Flags of `mcp`.

use std::path::PathBuf;

/// `vramlab mcp`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// Read files below this folder alone: what leads out of it by `..` or a symbolic link is refused.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Stop a call after so many seconds, and a rehearsal after ten times as many.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Also offer `rehearse`, which runs Python scripts below this folder, with all their effects.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "DIR")]
    pub allow_rehearse: Option<PathBuf>,
}
