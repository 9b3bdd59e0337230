//! Flags of the network, and of its variants.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use lab::exported::Reads;
use lab::huggingface::{AttentionMask, Head, Keep, Release, Script};
use lab::models::Recompute;
use lab::run::{AttentionName, LossChoice, ModelSpec, UsualRelease};
use lab::training::CheckpointSave;

use super::values;

/// Variable that keeps `predict` from starting a Python: an assistant's tools set it, which read files and run nothing.
pub(crate) const ONLY_BUILT_IN: &str = "VRAMLAB_ONLY_BUILT_IN";

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// The network: a name of `vramlab info models`, or its name on the hub (meta-llama/Llama-3.1-8B) [default: simple-cnn].
    #[arg(long, help_heading = values::MOST_USED, value_name = "NAME", conflicts_with = "model_file", hide_possible_values = true, value_parser = network())]
    pub model: Option<String>,
    /// A network described in a file: TOML, with training settings (flags override them), a `config.json` of Hugging Face's transformers, or a
    /// `.pt2` of torch.export.
    #[arg(long, help_heading = values::MOST_USED, value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// The discriminator of a generative adversarial network, a `.pt2` whose generator is --model-file. Both are trained in turns, as in PyTorch's
    /// tutorial of DCGAN: the discriminator on real pictures and on made ones, then the generator, with an optimizer each.
    #[arg(long, value_name = "FILE", requires = "model_file")]
    pub adversary: Option<PathBuf>,
    /// Layers (mlp: hidden layers; gpt: blocks).
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Width (mlp: neurons per hidden layer; gpt, seq2seq-attention: embedding; resnet, vgg16, mobilenet_v2, densenet121, convnext: channels of the
    /// first stage).
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Attention heads.
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Tokens per example.
    #[arg(long, help_heading = values::MOST_USED, value_name = "N")]
    pub sequence: Option<usize>,
    /// Number of different tokens.
    #[arg(long, value_name = "N")]
    pub vocabulary: Option<usize>,
    /// Features per example (mlp).
    #[arg(long, value_name = "N")]
    pub features: Option<usize>,
    /// Side of the pictures in pixels (resnet, vgg16, mobilenet_v2, densenet121, convnext) [default: 224].
    #[arg(long, value_name = "N")]
    pub image: Option<usize>,
    /// Classes (mlp, resnet, vgg16, mobilenet_v2, densenet121, convnext).
    #[arg(long, value_name = "N")]
    pub classes: Option<usize>,
    /// Probability of dropping a value (gpt, vgg16, mobilenet_v2, densenet121), or of dropping the last block for an example (convnext; the
    /// probability rises up to that block).
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub dropout: Option<f64>,
    /// Attention as separate operators (eager: the scores are kept), or as one kernel (sdpa) (gpt; transformers, where sdpa is the default).
    #[arg(long, value_name = "KIND", value_parser = values::one_of::<AttentionName>(AttentionName::NAMES))]
    pub attention: Option<AttentionName>,
    /// Recompute in backward instead of keeping: none, blocks (each by itself), blocks:N (every N-th), sqrt (segments of about √n blocks), or numbers of
    /// blocks from 0 (1,3). A block is: mlp: a hidden layer with its ReLU; gpt: a block; resnet, mobilenet_v2, convnext: a residual block (convnext: segments lie
    /// within a stage); vgg16: one of the five stages; densenet121 (none, blocks): a layer up to its bottleneck; transformers (not sqrt; of encoders none, blocks): a block;
    /// a .pt2 (not sqrt): a numbered module, or modules by paths such as 'h.*' [default: none].
    #[arg(long, value_name = "WHAT")]
    pub checkpoint: Option<Recompute>,
    /// Keep the results of these operators of recomputed blocks, as create_selective_checkpoint_contexts does: some of mm, mm:2 (every second one, as
    /// torchtitan), addmm, bmm, matmuls (all three), attention (fused kernels), convolution [default: none].
    #[arg(long, value_name = "OPERATORS", requires = "checkpoint")]
    pub checkpoint_save: Option<CheckpointSave>,
    /// The head on the hidden states (transformers) [default: that of the class in `architectures`; without one, the language model's].
    #[arg(long, value_name = "NAME", value_parser = values::one_of::<Head>(Head::NAMES))]
    pub head: Option<Head>,
    /// Number of texts from which an example chooses (transformers with a multiple-choice head) [default: 4].
    #[arg(long, value_name = "N")]
    pub choices: Option<usize>,
    /// The release of transformers, such as 4.51 [default: the one that is installed for the Python of --python; without one, the newest known].
    #[arg(long, value_name = "RELEASE")]
    pub transformers: Option<Release>,
    /// The interpreter or environment that the training will use; its release of transformers counts [default: that of VIRTUAL_ENV, else of
    /// CONDA_PREFIX, else python3 on PATH].
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Result that the script holds until the next one: the output with logits and cache, or only the loss (transformers) [default: output].
    #[arg(long, value_name = "WHAT", value_parser = values::one_of::<Keep>(Keep::NAMES))]
    pub keep: Option<Keep>,
    /// The attention_mask of a batch: none, full (of ones: all examples have the same length), or padded (examples of a little more than half their
    /// length, with padding at the end) (transformers) [default: none].
    #[arg(long, value_name = "KIND", value_parser = values::one_of::<AttentionMask>(AttentionMask::NAMES))]
    pub attention_mask: Option<AttentionMask>,
    /// Score the last N tokens of each example alone, and take the loss of their labels: logits_to_keep (decoders of transformers) [default: all].
    #[arg(long, value_name = "N")]
    pub logits_to_keep: Option<usize>,
    /// Each example holds N texts, told apart by position_ids without an attention_mask, as packing trainers pass them (decoders of transformers)
    /// [default: one text, without position_ids].
    #[arg(long, value_name = "N")]
    pub packing: Option<usize>,
    /// Make the network on the device (`with torch.device("cuda")`), instead of making it in main memory and moving it (transformers).
    #[arg(long)]
    pub built_on_device: bool,
    /// Keep the weights of linear layers in 4 bits, as bitsandbytes does (transformers; with --lora of decoders without your Python).
    #[arg(long = "load-in-4bit")]
    pub load_in_4bit: bool,
    /// Keep them in 8 bits.
    #[arg(long = "load-in-8bit", conflicts_with = "load_in_4bit")]
    pub load_in_8bit: bool,
    /// Quantize the scales of 4-bit weights, too (bnb_4bit_use_double_quant).
    #[arg(long, requires = "load_in_4bit")]
    pub double_quant: bool,
    /// The loss if the network gives no scalar: sum or mean of its first output, cross-entropy against classes, mse against values (a .pt2) [default:
    /// the network's own scalar; else cross-entropy if the output is [batch, classes], otherwise mean]. A decoder's config.json: checkpointed or
    /// chunked:N, output layer and loss computed again in backward, of all tokens or of N parts in turn; liger, Liger's fused loss.
    #[arg(long, value_name = "NAME", value_parser = values::one_of::<LossChoice>(LossChoice::NAMES))]
    pub loss: Option<LossChoice>,
    /// The training loop: plain (batch, zero_grad, forward, backward, step), or trainer: that of transformers' Trainer, without a cache, with fused
    /// AdamW over two groups, lr 5e-5, no weight decay, gradients clipped at 1.0, unless flags say otherwise (transformers) [default: plain].
    #[arg(long = "loop", value_name = "KIND", value_parser = values::one_of::<Script>(Script::NAMES))]
    pub script: Option<Script>,
    /// Share the output layer's weights with the token table (gpt).
    #[arg(long)]
    pub tied: bool,
    /// Keep intermediate results in a list that only a schedule's `clear` empties: hidden activations (two-layer), attention weights
    /// (seq2seq-attention).
    #[arg(long)]
    pub keep_intermediate: bool,
}

impl ModelArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> ModelSpec {
        let args = self.clone();
        ModelSpec {
            model: args.model,
            model_file: args.model_file,
            adversary: args.adversary,
            layers: args.layers,
            width: args.width,
            heads: args.heads,
            sequence: args.sequence,
            vocabulary: args.vocabulary,
            features: args.features,
            image: args.image,
            classes: args.classes,
            dropout: args.dropout,
            attention: args.attention,
            checkpoint: args.checkpoint,
            checkpoint_save: args.checkpoint_save,
            head: args.head,
            choices: args.choices,
            transformers: args.transformers,
            keep: args.keep,
            attention_mask: args.attention_mask,
            logits_to_keep: args.logits_to_keep,
            packing: args.packing,
            built_on_device: args.built_on_device,
            load_in_4bit: args.load_in_4bit,
            load_in_8bit: args.load_in_8bit,
            double_quant: args.double_quant,
            loss: args.loss,
            script: args.script,
            tied: args.tied,
            keep_intermediate: args.keep_intermediate,
            reads: Reads::default(),
            graph: None,
            usual_release: UsualRelease::default(),
        }
    }
}

/// Returns the names of all networks.
pub(super) fn names() -> Vec<&'static str> {
    lab::models::ALL.iter().map(|(name, _)| *name).chain(lab::networks::names()).collect()
}

/// Returns the network that a word names: by its own name, or by one on the hub.
pub(crate) fn named(word: &str) -> Option<&'static str> {
    let own = lab::models::ALL.iter().map(|(name, _)| *name).find(|name| *name == word);
    own.or_else(|| lab::networks::name_of(word))
}

/// Parses the name of a network: it offers the names, and takes those on the hub, too.
pub(super) fn network() -> impl TypedValueParser<Value = String> {
    NetworkName
}

#[derive(Clone)]
struct NetworkName;

impl TypedValueParser for NetworkName {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let parse = |word: String| {
            let missing = || format!("no network is called so{}", lab::similar::did_you_mean(&word, names()));
            named(&word).map(String::from).ok_or_else(missing)
        };
        StringValueParser::new().try_map(parse).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names().into_iter().map(PossibleValue::new)))
    }
}
