//! Flags of `ui`.

use std::net::{IpAddr, SocketAddr};
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
    /// Serve everyone who reaches this address of the machine: without a token, and without files. 0.0.0.0 is every address; ADDRESS:N has the
    /// port, too.
    #[arg(long, value_name = "ADDRESS", value_parser = public)]
    pub public: Option<SocketAddr>,
    /// Answer requests of standard input, one per line: what the server starts for each core.
    #[arg(long, hide = true)]
    pub worker: bool,
    /// The folder of the files that were dropped.
    #[arg(long, hide = true, value_name = "DIR", requires = "worker")]
    pub files: Option<PathBuf>,
}

/// Reads an address with or without a port; 0 is a free one.
fn public(text: &str) -> Result<SocketAddr, String> {
    let text = text.replacen("localhost", "127.0.0.1", 1);
    let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
    alone.or_else(|_| text.parse()).map_err(|_| {
        "an address of this machine is wanted, as numbers: 0.0.0.0 (every address), 192.168.1.5, 0.0.0.0:8421".into()
    })
}

impl UiArgs {
    /// The address to serve on: `--port` counts before that of `--public`.
    pub(crate) fn address(&self) -> SocketAddr {
        let mut address = self.public.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        if self.port != 0 {
            address.set_port(self.port);
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port() {
        let read = |text| public(text).map(|address| address.to_string());
        assert_eq!(read("0.0.0.0"), Ok("0.0.0.0:0".into()));
        assert_eq!(read("localhost:8765"), Ok("127.0.0.1:8765".into()));
        assert_eq!(read("::1"), Ok("[::1]:0".into()));
        assert_eq!(read("[::1]:80"), Ok("[::1]:80".into()));
        assert!(read("8421").is_err() && read("example.org").is_err());
    }
}
