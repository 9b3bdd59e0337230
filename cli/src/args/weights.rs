//! Destination of a training's state.

use crate::destination::Destination;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct SaveArgs {
    /// Write weights and state after the last step (or after Ctrl-C), in the safetensors format.
    #[arg(long, value_name = "FILE", conflicts_with = "data_parallel")]
    pub save: Option<Destination>,
}
