//! Flags of `bench`, which measures the speed of the devices.

use clap::builder::PossibleValuesParser;

use super::{HtmlArgs, OutputArgs, values};
use crate::backends;

/// `vramlab bench`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Measure the devices of one backend only.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(backends::all().iter().map(|entry| entry.name)))]
    pub backend: Option<String>,
    /// Seconds for all measurements together; opening devices and compiling kernels take additional time.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = values::positive)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
}
