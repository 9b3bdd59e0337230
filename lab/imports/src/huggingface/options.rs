//! What is chosen beside a configuration, and what is said of a network.

use lab_base::named;

use super::dtype::LoadAs;
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
    /// Whether batches come with an `attention_mask`.
    pub attention_mask: AttentionMask,
    /// Which head stands on the hidden states; that of `architectures` unless said.
    pub head: Option<Head>,
    /// Texts that an example of multiple choice has; 4 unless said.
    pub choices: Option<usize>,
    /// The library's release; that of `transformers_version` unless said.
    pub transformers: Option<Release>,
    /// Whether the library makes the network on the device itself (`with torch.device("cuda")`), not in main memory to move it there.
    pub built_on_device: bool,
    /// What `from_pretrained` is given as `dtype`.
    pub load_as: LoadAs,
    /// Whose training loop is around it.
    pub script: Script,
}

impl Options {
    /// Whether a network whose configuration says `use_cache` fills a cache: not where blocks are computed twice, and not in the library's
    /// `Trainer`, which sets `use_cache` to false (release 5.23; `TrainingArguments.use_cache`).
    pub(super) fn caches(&self, use_cache: bool) -> bool {
        use_cache && !self.checkpoint && self.script == Script::Plain
    }

    /// In what the release differs from others.
    pub(super) fn rules(&self) -> Rules {
        Rules::of(self.transformers.unwrap_or(REPRESENTED))
    }
}

/// The training loop around a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Script {
    /// A plain one: batch, `zero_grad`, forward, backward, step.
    #[default]
    Plain,
    /// The library's own `Trainer`.
    Trainer,
}

named!(Script, "training loop", { Plain = "plain", Trainer = "trainer" });

/// The `attention_mask` of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionMask {
    /// None is passed.
    #[default]
    None,
    /// One of ones: every example is as long as the batch.
    Full,
    /// One that hides padding at the end of examples.
    Padded,
}

named!(AttentionMask, "attention mask", { None = "none", Full = "full", Padded = "padded" });

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
