//! Flags of the network, and of its variants.

use std::path::PathBuf;

use lab::run::ModelSpec;
pub(crate) use lab::run::flags::{named, names, network};

/// Variable that keeps `predict` from starting a Python: an assistant's tools set it, which read files and run nothing.
pub(crate) const ONLY_BUILT_IN: &str = "VRAMLAB_ONLY_BUILT_IN";

/// The network, and the Python that will train it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    #[command(flatten)]
    pub spec: ModelSpec,
    /// The interpreter or environment that the training will use; its release of transformers counts [default: that of VIRTUAL_ENV, else of
    /// CONDA_PREFIX, else python3 on PATH].
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}
