//! Flags of what a training loop does besides one step after another with batches of one size.

use lab::run::{EvalKeep, LoopSpec, SizeList};
use lab::training::{Ema, Hold, SavedOn};

use super::values;

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
    /// Evaluate after every N steps, under torch.no_grad() and model.eval(), in a function of its own; the loop's variables keep their values
    /// meanwhile [default: no evaluation].
    #[arg(long, value_name = "N")]
    pub eval_every: Option<usize>,
    /// Examples of each batch of an evaluation [default: as in training].
    #[arg(long, value_name = "N")]
    pub eval_batch: Option<usize>,
    /// Batches of an evaluation [default: 2, after which nothing grows].
    #[arg(long, value_name = "N")]
    pub eval_steps: Option<usize>,
    /// What an evaluation keeps of its batches until its end: nothing (each loss is read as a number), or the logits of all, in a list
    /// [default: nothing].
    #[arg(long, value_name = "WHAT", value_parser = values::one_of::<EvalKeep>(EvalKeep::NAMES))]
    pub eval_keep: Option<EvalKeep>,
    /// Keep an exponential moving average of the weights, taken after each step: AveragedModel, a copy of the module with its buffers (model), or a
    /// list of clones (parameters) [default: none].
    #[arg(long, value_name = "KIND", value_parser = values::one_of::<Ema>(Ema::NAMES))]
    pub ema: Option<Ema>,
    /// Names of the script that keep their values after a step, until they are bound again in the next one: some of inputs, outputs, loss, or none,
    /// as if a function took the step. The others are deleted after it [default: inputs,outputs,loss].
    #[arg(long, value_name = "NAMES")]
    pub hold: Option<Hold>,
    /// Put the network and its pictures in channels-last: model.to(memory_format=torch.channels_last) once, and the same of each batch after it is
    /// on the card. With --cudnn-workspace the convolutions read it; PyTorch's own copy it into row-major order. Only counted (predict).
    #[arg(long)]
    pub channels_last: bool,
    /// Keep what forward saves for backward on the host, as torch.autograd.graph.save_on_cpu does: in pageable memory, or =pinned
    /// (pin_memory=True) [default: on the card].
    #[arg(long, value_name = "MEMORY", num_args = 0..=1, require_equals = true, default_missing_value = "pageable",
          value_parser = values::one_of::<SavedOn>(SavedOn::NAMES))]
    pub save_on_cpu: Option<SavedOn>,
}

impl LoopArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> LoopSpec {
        let Self { batches, lengths, eval_every, eval_batch, eval_steps, eval_keep, ema, hold, .. } = self.clone();
        let (channels_last, save_on_cpu) = (self.channels_last, self.save_on_cpu);
        LoopSpec {
            batches,
            lengths,
            eval_every,
            eval_batch,
            eval_steps,
            eval_keep,
            ema,
            hold,
            channels_last,
            save_on_cpu,
        }
    }
}
