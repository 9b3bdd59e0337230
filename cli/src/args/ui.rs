//! Flags of `ui`.

use std::net::IpAddr;
use std::path::PathBuf;

/// `vramlab ui`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UiArgs {
    /// Settings to begin with: an address that was copied from the page, the part after its `#`, or a network's name.
    #[arg(value_name = "LINK")]
    pub link: Option<String>,
    /// The port [default: a free one].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Print the address, and open no browser.
    #[arg(long)]
    pub no_open: bool,
    /// Serve everyone who reaches this address of the machine: without a token, and without files.
    #[arg(long, value_name = "ADDRESS")]
    pub public: Option<IpAddr>,
    /// Answer requests of standard input, one per line: what the server starts for each core.
    #[arg(long, hide = true)]
    pub worker: bool,
    /// The folder of the files that were dropped.
    #[arg(long, hide = true, value_name = "DIR", requires = "worker")]
    pub files: Option<PathBuf>,
}
