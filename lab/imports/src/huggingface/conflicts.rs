//! What options a network or a loop does not have.

use lab_base::error::{Error, Result};
use lab_models::Recompute;

use super::Pretrained;
use super::family::Kind;
use super::options::{Attention, AttentionMask, End, Script};

impl Pretrained {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Usage`] for one that this network or loop does not have.
    pub(super) fn check_options(&self) -> Result<()> {
        self.check_mask()?;
        self.check_end()?;
        self.check_scores()?;
        self.check_packing()?;
        self.check_checkpoint()
    }

    /// # Errors
    /// [`Error::Usage`] for a mask that batches of this network do not have.
    fn check_mask(&self) -> Result<()> {
        let triangular = self.options.rules().triangular_mask;
        let problem = match self.options.attention_mask {
            AttentionMask::None => return Ok(()),
            _ if self.sees_pictures() => "images have no attention_mask",
            AttentionMask::Padded if self.length() < 3 => "examples of one or two tokens have no padding here",
            AttentionMask::Padded if triangular => "with padding, masks of transformers before 4.53 are not supported",
            AttentionMask::Full if triangular && self.options.attention == Attention::Eager => {
                "with written-out attention, masks of transformers before 4.53 are not supported"
            }
            AttentionMask::Full | AttentionMask::Padded => return Ok(()),
        };
        Err(Error::usage("attention_mask", problem))
    }

    /// # Errors
    /// [`Error::Usage`] for a loss of the last hidden states in a network or a loop that has none.
    fn check_end(&self) -> Result<()> {
        if self.options.end == End::Own {
            return Ok(());
        }
        let by_liger = self.options.by_liger();
        let problem = match self.options.script {
            _ if by_liger && !(self.predicts_next() && self.has_rms_norms()) => {
                "Liger's kernels are supported for decoders of Llama, Mistral, Qwen2, Qwen3, Gemma and Phi-3; of others a rehearsal of the script has them (vramlab predict train.py)"
            }
            Script::Trainer if by_liger => "vramlab supports Liger's kernels in a plain loop; leave out --loop trainer",
            _ if !self.predicts_next() => {
                "checkpointed, chunked and liger are for decoders that predict the next token"
            }
            Script::Trainer => {
                "with --loop trainer the network computes its own; --loop plain has checkpointed, chunked and liger"
            }
            Script::Plain => return Ok(()),
        };
        Err(Error::usage(if by_liger { "liger" } else { "loss" }, problem))
    }

    /// # Errors
    /// [`Error::Usage`] for scores of some tokens where they were not recorded.
    fn check_scores(&self) -> Result<()> {
        let Some(count) = self.options.logits_to_keep else { return Ok(()) };
        let problem = match self.of_tokens(count) {
            Some(problem) => problem,
            None if count > self.length() => "an example has fewer tokens",
            None => return Ok(()),
        };
        Err(Error::usage("logits-to-keep", problem))
    }

    /// # Errors
    /// [`Error::Usage`] for several texts in an example where they were not recorded.
    fn check_packing(&self) -> Result<()> {
        let Some(texts) = self.options.packing else { return Ok(()) };
        let problem = match self.of_tokens(texts) {
            Some(problem) => problem,
            None if texts == 1 => "one text is an example as it is; leave it out, or pass 2 and more",
            None if texts > self.length() => "an example has fewer tokens",
            None if self.options.rules().triangular_mask => {
                "transformers before 4.53 do not tell texts apart; leave it out"
            }
            None if self.options.attention_mask != AttentionMask::None => {
                "texts are told apart without an attention_mask; leave out --attention-mask"
            }
            None => return Ok(()),
        };
        Err(Error::usage("packing", problem))
    }

    /// Why a number of the tokens or texts of an example is not for this network or loop.
    fn of_tokens(&self, number: usize) -> Option<&'static str> {
        match self.options.script {
            _ if !self.predicts_next() => Some("it is for decoders that predict the next token"),
            Script::Trainer => Some("with --loop trainer it is not recorded; --loop plain has it"),
            Script::Plain => (number == 0).then_some("must be at least 1"),
        }
    }

    /// Tokens of an example.
    fn length(&self) -> usize {
        self.options.sequence.unwrap_or_else(|| self.sizes().positions)
    }

    /// # Errors
    /// [`Error::Usage`] for blocks that the network does not have, and for some blocks of another network than a decoder.
    fn check_checkpoint(&self) -> Result<()> {
        let checkpoint = &self.options.checkpoint;
        let problem = match checkpoint {
            Recompute::None | Recompute::Blocks => return Ok(()),
            Recompute::Sqrt | Recompute::Modules(_) => {
                "a config.json of transformers has none, blocks, blocks:N and numbers of blocks"
            }
            _ if !matches!(self.family.kind(), Kind::Decoder { .. }) => {
                "some of the blocks are for decoders; this network has none and blocks"
            }
            _ => return checkpoint.check(self.known.name, self.sizes().layers),
        };
        Err(Error::usage("checkpoint", format!("{checkpoint}: {problem}")))
    }
}
