//! Flags of every command.

use clap::ValueEnum;

/// Flags of every command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct GlobalArgs {
    /// Say nothing but the results: no progress, no notes.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Show all of the answer: every table, every exact byte.
    #[arg(long, global = true)]
    pub full: bool,
    /// Also print what was chosen, and why, on standard error.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to use colours; with `auto`, the variable NO_COLOR turns them off.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub color: ColorWhen,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
