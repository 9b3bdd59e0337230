//! Flags of destinations of results besides the terminal.

use crate::destination::Destination;

/// Destinations of results besides the terminal. `-` is standard output, which then contains nothing else.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write everything as JSON; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,
    /// Write the main table as CSV.
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<Destination>,
    /// Write the main table as Markdown.
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<Destination>,
}

impl OutputArgs {
    /// Returns all given destinations.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        [&self.json, &self.export_csv, &self.export_markdown].into_iter().flatten()
    }

    /// True if standard output is taken by a file format.
    pub(crate) fn takes_stdout(&self) -> bool {
        self.destinations().any(|destination| *destination == Destination::Stdout)
    }
}
