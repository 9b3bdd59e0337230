//! Flags of what a training loop does besides one step after another with batches of one size.

use lab::run::{LoopSpec, SizeList};

/// The shape of the training loop.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loop")]
pub(crate) struct LoopArgs {
    /// Examples of each batch in turn, from the first again after the last: 32,32,32,17 is an epoch with a smaller last batch. With --accumulate
    /// each micro-batch takes the next one. Of synthetic data.
    #[arg(long, value_name = "N,N,…", conflicts_with = "batch")]
    pub batches: Option<SizeList>,
    /// Tokens of each batch's examples in turn: 512,128,1024 (gpt, gpt2, transformers) [default: as many as the network takes].
    #[arg(long, value_name = "N,N,…")]
    pub lengths: Option<SizeList>,
}

impl LoopArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> LoopSpec {
        let Self { batches, lengths } = self.clone();
        LoopSpec { batches, lengths }
    }
}
