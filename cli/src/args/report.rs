//! Flags of `report`, and of the pages and exports of other commands.

use std::path::PathBuf;

use crate::destination::Destination;

/// A page to look at.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct HtmlArgs {
    /// Write a report to look at: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE.html", value_parser = file)]
    pub html: Option<Destination>,
}

/// What happened to memory, for other programs.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ExportArgs {
    /// Write a trace for ui.perfetto.dev and chrome://tracing: bytes by category, phases, operators; an event is a microsecond.
    #[arg(long, value_name = "FILE", value_parser = file)]
    pub export_trace: Option<Destination>,
    /// Write what lived at the peak as folded stacks, for speedscope.app and flamegraph.pl.
    #[arg(long, value_name = "FILE", value_parser = file)]
    pub export_folded: Option<Destination>,
    /// Write every allocation's life as CSV (id,lower,upper,size), for MiniMalloc and other packers.
    #[arg(long, value_name = "FILE", value_parser = file)]
    pub export_minimalloc: Option<Destination>,
}

impl ExportArgs {
    /// Returns all given destinations.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        [&self.export_trace, &self.export_folded, &self.export_minimalloc].into_iter().flatten()
    }

    /// True if any was given.
    pub(crate) fn any(&self) -> bool {
        self.destinations().next().is_some()
    }
}

/// `vramlab report`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Results that `--json` wrote (of train, predict, run, fit, bench, replay, explain, cards, devices, scans), and recordings of `--events`; gzip-compressed or not.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the page. Two runs stand side by side, each drawn from the events whose peaks are its own. Without this flag results are printed: two
    /// runs as a table, parts of a scan (--shard) joined.
    #[arg(short, long, visible_alias = "html", value_name = "OUT.html", value_parser = file)]
    pub output: Option<Destination>,
    /// Write the results as JSON, with parts joined; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,
    #[command(flatten)]
    pub exports: ExportArgs,
}

/// Parses a file's name: these formats are not for reading on a terminal.
pub(super) fn file(text: &str) -> Result<Destination, String> {
    match text {
        "" | "-" => Err("expected the name of a file".into()),
        path => Ok(Destination::File(path.into())),
    }
}
