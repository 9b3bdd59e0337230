//! Options in addition to a configuration, and the sizes shown of a network.

use lab_base::named;
use lab_models::Recompute;

use super::dtype::LoadAs;
use super::head::Head;
use super::releases::{REPRESENTED, Release, Rules};

/// Options in addition to the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Tokens per example; by default as many as there are positions. Images have none.
    pub sequence: Option<usize>,
    /// How attention is computed.
    pub attention: Attention,
    /// The blocks that are computed again: `gradient_checkpointing_enable()`, and `layer.gradient_checkpointing = False` of the others.
    pub checkpoint: Recompute,
    /// The `attention_mask` of batches.
    pub attention_mask: AttentionMask,
    /// Head on the hidden states; by default that of `architectures`.
    pub head: Option<Head>,
    /// Texts per example of multiple choice; 4 by default.
    pub choices: Option<usize>,
    /// Release of the library; the newest supported by default.
    pub transformers: Option<Release>,
    /// True if the library makes the network on the device itself (`with torch.device("cuda")`), not in main memory to move it there.
    pub built_on_device: bool,
    /// The `dtype` argument of `from_pretrained`.
    pub load_as: LoadAs,
    /// Training loop.
    pub script: Script,
    /// How a language model's loss is computed of its last hidden states.
    pub end: End,
    /// The last tokens of an example that are given scores, with their labels alone: `logits_to_keep`; `None` for all.
    pub logits_to_keep: Option<usize>,
    /// Texts that an example consists of, told apart by `position_ids`; `None` if none are passed.
    pub packing: Option<usize>,
    /// True for a release before 5, whose checkpointing leaves the embeddings of tokens as they are.
    pub plain_embeds: bool,
}

impl Options {
    /// True if a network whose configuration has `use_cache` fills a cache: not in the library's `Trainer`, which sets `use_cache` to false (release
    /// 5.23; `TrainingArguments.use_cache`).
    pub(super) fn caches(&self, use_cache: bool) -> bool {
        use_cache && self.script == Script::Plain
    }

    /// True if the embeddings of tokens require a gradient, even those of a frozen table: `gradient_checkpointing_enable` adds that.
    pub(super) fn marks_embeds(&self) -> bool {
        self.checkpoints() && !self.plain_embeds
    }

    /// True if `gradient_checkpointing_enable()` is called.
    pub(super) fn checkpoints(&self) -> bool {
        self.checkpoint != Recompute::None
    }

    /// True if Liger's kernels stand in for the network's norms, rotary positions and gates.
    pub(super) fn by_liger(&self) -> bool {
        self.end == End::Kernels
    }

    /// Returns the rules of the release.
    pub(super) fn rules(&self) -> Rules {
        Rules::from_release(self.transformers.unwrap_or(REPRESENTED))
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

/// How a decoder's loss is computed of its last hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// By the network's own call: the scores of all tokens exist, and are kept for backward.
    #[default]
    Own,
    /// `torch.utils.checkpoint` around output layer and loss: the scores are computed again in backward.
    Checkpointed,
    /// The same for at most so many parts of the tokens, one after the other: only the scores of one part exist.
    Chunked(usize),
    /// Liger's fused linear cross entropy: gradients are computed in forward, a part of the tokens at a time.
    Liger,
    /// The same in the network's own call, with Liger's kernels for norms, rotary positions and gates: `apply_liger_kernel_to_…`.
    Kernels,
}

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

/// Sizes for a line about a network.
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    /// Tokens of the vocabulary, or classes.
    pub(super) classes: usize,
    /// Largest number of tokens per example.
    pub(super) positions: usize,
}
