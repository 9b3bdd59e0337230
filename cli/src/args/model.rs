//! Which network, and how it differs from its default form.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lab::huggingface::{self, Head, Keep, Release, Script};
use lab::models::{ModelOptions, Recompute};

use super::values;

/// Which network.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// The network [default: simple-cnn].
    #[arg(long, value_name = "NAME", conflicts_with = "model_file", value_parser = PossibleValuesParser::new(names()))]
    pub model: Option<String>,
    /// A network described in a file: TOML with how it is trained (flags win), or a `config.json` of Hugging Face's transformers.
    #[arg(long, value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Layers (mlp: hidden layers; gpt: blocks).
    #[arg(long, value_name = "N", value_parser = values::layer_count())]
    pub layers: Option<usize>,
    /// Width (mlp: neurons per hidden layer; gpt, seq2seq-attention: embedding; resnet, vgg16, mobilenet_v2, densenet121, convnext: channels of the
    /// first stage).
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub width: Option<usize>,
    /// Attention heads.
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub heads: Option<usize>,
    /// Tokens per example.
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub sequence: Option<usize>,
    /// Number of different tokens.
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub vocabulary: Option<usize>,
    /// Features per example (mlp).
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub features: Option<usize>,
    /// Side of the pictures in pixels (resnet, vgg16, mobilenet_v2, densenet121, convnext) [default: 224].
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub image: Option<usize>,
    /// Classes (mlp, resnet, vgg16, mobilenet_v2, densenet121, convnext).
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub classes: Option<usize>,
    /// Probability of dropping a value (gpt, vgg16, mobilenet_v2, densenet121), or the last block for an example (convnext; it rises up to there).
    #[arg(long, value_name = "P", value_parser = values::fraction)]
    pub dropout: Option<f64>,
    /// Attention written out, or as the fused kernel (gpt; transformers, where sdpa is the default).
    #[arg(long, value_name = "KIND", value_enum)]
    pub attention: Option<AttentionName>,
    /// Compute again in backward instead of keeping: none, blocks (each for itself), sqrt (in segments of about √n blocks), or numbers of blocks
    /// from 0 (1,3). A block is: mlp: a hidden layer with its ReLU; gpt: a block; resnet, mobilenet_v2, convnext: a residual block
    /// (convnext: segments lie within a stage); vgg16: one of the five stages; densenet121 (none, blocks): a layer up to its bottleneck; transformers (none, blocks): a block [default: none].
    #[arg(long, value_name = "WHAT", value_parser = values::recompute)]
    pub checkpoint: Option<Recompute>,
    /// The head on the hidden states (transformers) [default: the class that `architectures` names; where it names none, the language model's].
    #[arg(long, value_name = "NAME", value_parser = heads())]
    pub head: Option<Head>,
    /// Texts that an example chooses from (transformers with a multiple-choice head) [default: 4].
    #[arg(long, value_name = "N", value_parser = values::size())]
    pub choices: Option<usize>,
    /// The release of transformers, such as 4.51 [default: the file's transformers_version; where it says none, the newest represented].
    #[arg(long, value_name = "RELEASE")]
    pub transformers: Option<Release>,
    /// What the script holds of a result until the next one: the output with logits and cache, or the loss alone (transformers) [default: output].
    #[arg(long, value_name = "WHAT", value_enum)]
    pub keep: Option<KeepName>,
    /// The attention_mask of a batch: none, full (of ones: no example is shorter than the others), or padded (examples of a little more than half
    /// their length, with padding at the end) (transformers) [default: none].
    #[arg(long, value_name = "KIND", value_enum)]
    pub attention_mask: Option<MaskName>,
    /// Make the network on the device (`with torch.device("cuda")`) instead of in main memory, from where it is moved (transformers).
    #[arg(long)]
    pub built_on_device: bool,
    /// The training loop: plain (batch, zero_grad, forward, backward, step), or trainer: that of transformers' Trainer, without a cache, with fused
    /// AdamW over two groups, lr 5e-5, no weight decay, gradients clipped at 1.0, unless said (transformers) [default: plain].
    #[arg(long = "loop", value_name = "KIND", value_enum)]
    pub script: Option<LoopName>,
    /// Share the output layer's weights with the token table (gpt).
    #[arg(long)]
    pub tied: bool,
    /// Keep intermediate results in a list that nothing empties but a schedule's `clear`: hidden activations (two-layer), attention weights
    /// (seq2seq-attention).
    #[arg(long)]
    pub keep_intermediate: bool,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttentionName {
    /// Written out: the scores are kept.
    Eager,
    /// One kernel, as scaled_dot_product_attention.
    Sdpa,
}

/// The mask of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MaskName {
    /// No `attention_mask`.
    None,
    /// One of ones.
    Full,
    /// One that hides padding.
    Padded,
}

impl MaskName {
    /// As typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Full => "full",
            Self::Padded => "padded",
        }
    }
}

/// The training loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoopName {
    /// A script's own.
    Plain,
    /// `transformers.Trainer`
    Trainer,
}

impl LoopName {
    /// As typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Trainer => "trainer",
        }
    }
}

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepName {
    /// `out = model(**batch)`
    Output,
    /// `loss = model(**batch).loss`
    Loss,
}

/// The network, unless said.
const DEFAULT: &str = "simple-cnn";

impl ModelArgs {
    /// The network's name, unless it comes from a file.
    pub(crate) fn name(&self) -> &str {
        self.model.as_deref().unwrap_or(DEFAULT)
    }

    /// The file, when it is a configuration of the transformers library.
    pub(crate) fn config_json(&self) -> Option<&Path> {
        let path = self.model_file.as_deref()?;
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")).then_some(path)
    }

    /// For such a configuration.
    pub(crate) fn pretrained_options(&self) -> huggingface::Options {
        huggingface::Options {
            sequence: self.sequence,
            attention: match self.attention {
                Some(AttentionName::Eager) => huggingface::Attention::Eager,
                Some(AttentionName::Sdpa) | None => huggingface::Attention::Sdpa,
            },
            checkpoint: self.checkpoint == Some(Recompute::Blocks),
            attention_mask: match self.attention_mask {
                Some(MaskName::Full) => huggingface::AttentionMask::Full,
                Some(MaskName::Padded) => huggingface::AttentionMask::Padded,
                Some(MaskName::None) | None => huggingface::AttentionMask::None,
            },
            head: self.head,
            choices: self.choices,
            transformers: self.transformers,
            built_on_device: self.built_on_device,
            // A file's `transformers_version` is the release that wrote it, most often a 4; what loads it is said by the flag.
            load_as: self.transformers.map(Release::loads_as).unwrap_or_default(),
            script: if self.by_trainer() { Script::Trainer } else { Script::Plain },
        }
    }

    /// Whether the library's `Trainer` trains it.
    pub(crate) fn by_trainer(&self) -> bool {
        self.script == Some(LoopName::Trainer)
    }

    /// The first of the flags that belong to a `config.json` alone, where one was given.
    pub(crate) fn of_pretrained(&self) -> Option<&'static str> {
        let given = [
            ("--head", self.head.is_some()),
            ("--choices", self.choices.is_some()),
            ("--transformers", self.transformers.is_some()),
            ("--keep", self.keep.is_some()),
            ("--attention-mask", self.attention_mask.is_some()),
            ("--built-on-device", self.built_on_device),
            ("--loop", self.script.is_some()),
        ];
        given.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    /// What is held of its results.
    pub(crate) fn kept(&self) -> Keep {
        if self.keep == Some(KeepName::Loss) { Keep::Loss } else { Keep::Output }
    }

    /// For the model's constructor.
    pub(crate) fn options(&self) -> ModelOptions {
        ModelOptions {
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            sequence: self.sequence,
            vocabulary: self.vocabulary,
            features: self.features,
            image: self.image,
            classes: self.classes,
            dropout: self.dropout,
            fused_attention: self.attention == Some(AttentionName::Sdpa),
            tied: self.tied,
            keep_intermediate: self.keep_intermediate,
            recompute: self.checkpoint.clone().unwrap_or_default(),
        }
    }
}

fn heads() -> impl TypedValueParser<Value = Head> {
    PossibleValuesParser::new(Head::ALL.map(Head::name)).try_map(|name| {
        Head::ALL.into_iter().find(|head| head.name() == name).ok_or_else(|| format!("{name}: not a head"))
    })
}

pub(super) fn names() -> Vec<&'static str> {
    lab::models::ALL.iter().map(|(name, _)| *name).collect()
}
