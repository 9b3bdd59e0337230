//! Flags of the device.

use crate::backends;
use clap::builder::PossibleValuesParser;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Backend that computes. `auto` takes the first that works; `meta` only counts memory and computes nothing [default: auto].
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(backends::names()))]
    pub backend: Option<String>,
    /// Number of the backend's device, as `vramlab info devices` lists it [default: 0].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}
