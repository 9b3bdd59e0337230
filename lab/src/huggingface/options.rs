//! What is chosen beside a configuration, and what is said of a network.

use super::head::Head;
use super::releases::{REPRESENTED, Release, Rules};

/// What is chosen beside the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Tokens per example; as many as there are positions unless said. Images have none.
    pub sequence: Option<usize>,
    /// How attention is computed.
    pub attention: Attention,
    /// `gradient_checkpointing_enable(use_reentrant=False)`.
    pub checkpoint: bool,
    /// Whether batches come with an `attention_mask` (of ones).
    pub attention_mask: bool,
    /// Which head stands on the hidden states; that of `architectures` unless said.
    pub head: Option<Head>,
    /// Texts that an example of multiple choice has; 4 unless said.
    pub choices: Option<usize>,
    /// The library's release; that of `transformers_version` unless said.
    pub transformers: Option<Release>,
    /// Whether the library makes the network on the device itself (`with torch.device("cuda")`), not in main memory to move it there.
    pub built_on_device: bool,
}

impl Options {
    /// In what the release differs from others.
    pub(super) fn rules(&self) -> Rules {
        Rules::of(self.transformers.unwrap_or(REPRESENTED))
    }
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// `eager`: written out, the scores are kept.
    Eager,
    /// `sdpa`: one kernel, the library's default.
    #[default]
    Sdpa,
}

/// The sizes that one line about a network says.
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    /// Tokens of the vocabulary, or classes.
    pub(super) classes: usize,
    /// Most tokens per example.
    pub(super) positions: usize,
}
