//! Flags of the beginning of a training, and of the destination of its state.

use std::path::PathBuf;

use crate::destination::Destination;

/// Weights with which a training begins, and destination of its state.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct WeightsArgs {
    /// Begin with the weights of a safetensors file. Its tensors must have the names (PyTorch's), sizes and types of the model's. Everything else
    /// starts anew.
    #[arg(long, value_name = "FILE", conflicts_with = "data_parallel")]
    pub load: Option<PathBuf>,
    /// Continue where the run that wrote this file with --save ended: weights, optimizer state, loss scale, random state, position in the data.
    /// --steps counts further steps.
    #[arg(long, value_name = "FILE", conflicts_with = "data_parallel")]
    pub resume: Option<PathBuf>,
    /// Write weights and state after the last step (or after Ctrl-C), in the safetensors format.
    #[arg(long, value_name = "FILE", conflicts_with = "data_parallel")]
    pub save: Option<Destination>,
}
