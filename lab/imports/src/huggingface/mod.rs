//! Networks of the `transformers` library from their `config.json`: the same operators in the same order, with the same tensors kept and freed, so
//! that their memory is what PyTorch takes for them.
//!
//! There is one architecture per file. The rules are those of release 5.24 of the library (`release_rules.rs` says how far others are from it); its defaults
//! stand for absent keys. Features of a configuration that no network here supports are errors with their names.

mod attention;
mod batches;
mod bert;
mod blocks;
mod cache;
mod config;
mod conflicts;
mod distilbert;
mod dtype;
mod ending;
mod family;
mod fused_loss;
mod gpt2;
mod gpt_neox;
mod groups;
mod head;
mod head_config;
mod inputs;
mod keys;
mod known;
mod layers;
mod library_trainer;
mod llama;
mod mask;
mod model_types;
mod network;
mod opt;
mod options;
mod phi3;
mod pieces;
mod prepared;
mod provenance;
mod ranks;
mod recomputed;
mod release_rules;
mod releases;
mod rms;
mod rotary;
mod scaling;
mod stage;
mod t5;
mod trainer;
mod vit;
mod windows;

use std::path::Path;

use memcore::nn::{Init, Module, Parameter, Sequential};
use memcore::{DType, ops};
use serde_json::Value;

pub use cache::LayerCache;
pub use dtype::{LoadAs, SavedType};
use ending::Ending;
use family::{Family, Kind};
pub use head::Head;
use head_config::HeadConfig;
pub use inputs::Inputs;
use keys::Keys;
pub use known::{Configuration, Known, find, find_without_owner, known};
pub use library_trainer::{LibraryStep, MAX_GRAD_NORM, library_trainer, trainer_optimizer};
pub use model_types::MODEL_TYPES;
use model_types::ModelType;
use network::Counting;
pub use network::{Network, Output};
use options::Sizes;
pub use options::{Attention, AttentionMask, End, Options, Script};
pub use ranks::train_ranks;
use release_rules::ReleaseRules;
pub use releases::{REPRESENTED, Release};
pub use trainer::{Keep, PretrainedNetwork, PretrainedStep, train, train_from, trainer};

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Defaults, Input, LoraTarget, Loss, Places, Task};

/// Largest number of layers that a configuration may have: a hundred times as many as any has.
const MAX_LAYERS: usize = 10_000;

/// Reason why a network with another head is trained as a whole.
const OWN_LOSS: &str =
    "only language models and classes of pictures are split or divided: this head computes its own loss";

/// A network as described by its configuration.
pub struct Pretrained {
    known: &'static ModelType,
    file: String,
    saved_type: SavedType,
    saved_by: Option<Release>,
    family: Box<dyn Family>,
    head: HeadConfig,
    options: Options,
    /// Keys of the file that are not known here; one sentence each.
    pub warnings: Vec<String>,
}

/// Reads a `config.json`.
///
/// # Errors
/// [`Error::Usage`] for a file that cannot be read, and as [`parse`].
pub fn load(path: &Path, options: &Options) -> Result<Pretrained> {
    Configuration::File(path).load(options)
}

/// Says where a text is not JSON, and whether it is only its beginning.
fn not_json(error: &serde_json::Error) -> String {
    match error.is_eof() {
        true => format!("only the beginning of a JSON file: it ends in line {}; download it again", error.line()),
        false => format!("not JSON: {error}"),
    }
}

/// Reads the text of a `config.json`; `file` is its name, for messages.
///
/// # Errors
/// [`Error::Usage`] naming file and key: no JSON, an unknown `model_type` (the known ones are listed), values of another type, sizes that do not
/// fit, and whatever is not supported.
pub fn parse(file: &str, text: &str, options: &Options) -> Result<Pretrained> {
    let value: Value = serde_json::from_str(text).map_err(|error| Error::usage(file, not_json(&error)))?;
    let Value::Object(map) = &value else { return Err(Error::usage(file, "is not a JSON object")) };
    let keys = Keys::new(file, map);
    let model_type = keys.name("model_type", "")?;
    let ReleaseRules { options, warning } = ReleaseRules::read(&keys, model_type, options)?;
    let options = &options;
    let attention = if options.attention == Attention::Eager { "eager" } else { "sdpa" };
    keys.check_choices(attention, options.checkpoints())?;
    keys.check_represented(if matches!(model_type, "t5" | "mt5") { &["is_encoder_decoder"] } else { &[] })?;
    let Some(known) = ModelType::named(model_type) else {
        let missing = if model_type.is_empty() {
            "it names no network".into()
        } else {
            format!("vramlab does not support {model_type:?}")
        };
        let known = MODEL_TYPES.join(", ");
        let problem = format!("{missing}; known: {known}; any other your own Python builds: vramlab predict {file}");
        return Err(keys.error("model_type", problem));
    };
    let head = HeadConfig::read(&keys, model_type, &known.classes, options)?;
    let family = (known.read)(&keys, &head, options)?;
    let model = Pretrained {
        known,
        file: file.into(),
        saved_type: SavedType::read(&keys)?,
        saved_by: provenance::release(&keys),
        family,
        head,
        options: options.clone(),
        warnings: warning.into_iter().chain(keys.unknown()).collect(),
    };
    model.check_options()?;
    let layers = model.sizes().layers;
    if layers > MAX_LAYERS {
        return Err(Error::usage(&model.file, format!("{layers} layers; at most {MAX_LAYERS} are read")));
    }
    Ok(model)
}

impl Configuration<'_> {
    /// Reads the network.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that cannot be read, and as [`parse`].
    pub fn load(&self, options: &Options) -> Result<Pretrained> {
        parse(&self.name(), &self.text()?, options)
    }
}

impl Pretrained {
    fn sizes(&self) -> Sizes {
        self.family.sizes()
    }

    /// True if examples are images, not tokens.
    fn sees_pictures(&self) -> bool {
        matches!(self.family.kind(), Kind::Pictures { .. })
    }

    /// True for a decoder whose head gives the scores of the next token: its loss can be computed of the last hidden states.
    pub fn predicts_next(&self) -> bool {
        self.head.head == Head::CausalLm && matches!(self.family.kind(), Kind::Decoder { .. })
    }

    /// Returns the layers on which PEFT puts adapters if no `target_modules` are given; `None` if it has none for the `model_type`.
    pub fn lora_target(&self) -> Option<LoraTarget> {
        let names = self.known.adapted;
        (!names.is_empty()).then(|| LoraTarget::names(names))
    }

    /// True for a decoder with RMS norms.
    pub fn has_rms_norms(&self) -> bool {
        self.known.rms_norms
    }

    /// Returns the layers whose weights bitsandbytes leaves as they are, of a language model whose other linear layers it quantizes; `None` for a network that was not
    /// recorded with such weights.
    pub fn not_quantized(&self) -> Option<Vec<String>> {
        (self.has_rms_norms() && self.is_language_model()).then(|| vec!["lm_head".into()])
    }

    /// True if its head gives scores of tokens.
    pub fn is_language_model(&self) -> bool {
        self.head.head.is_language_model()
    }

    /// Returns the options that the configuration does not contain.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the type that the configuration names for its weights.
    pub fn saved_type(&self) -> &SavedType {
        &self.saved_type
    }

    /// Returns the release that once saved the configuration, if it says so.
    pub fn saved_by(&self) -> Option<Release> {
        self.saved_by
    }

    /// Returns the type in which `from_pretrained` loads the weights, unless a script names another.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a type that is not supported.
    pub fn loaded_type(&self) -> Result<DType> {
        self.saved_type.loaded(self.options.load_as, &self.file)
    }

    /// Returns the largest number of tokens per example in the configuration; `None` for images.
    pub fn positions(&self) -> Option<usize> {
        (!self.sees_pictures()).then(|| self.sizes().positions)
    }

    /// True for a language model or an image classifier: a chain of blocks whose scores are compared with the batch's targets.
    fn scores_targets(&self) -> bool {
        self.head.head.is_language_model() || self.head.head == Head::ImageClassification
    }

    /// Returns the ending of its call.
    fn ending(&self) -> Ending {
        let classes = self.sizes().classes;
        match self.options.end {
            End::Checkpointed => return Ending::Recomputed { classes, chunks: None },
            End::Chunked(chunks) => return Ending::Recomputed { classes, chunks: Some(chunks) },
            End::Liger => return Ending::Fused { whole: false },
            End::Kernels => return Ending::Fused { whole: true },
            End::Own if self.scores_targets() => {
                let loss = self.task().loss;
                return match self.options.logits_to_keep {
                    Some(count) => Ending::Last(loss, count),
                    None => Ending::Scores(loss),
                };
            }
            End::Own => {}
        }
        let length = self.options.sequence.unwrap_or(self.sizes().positions);
        let kind = self.family.kind();
        let (decoder, wide) = match kind {
            Kind::Decoder { wide, .. } => (true, wide),
            _ => (false, false),
        };
        match (Ending::from_head(&self.head, decoder, wide, length), kind) {
            (Ending::Mean { .. }, Kind::Encoder { pools: true } | Kind::Pictures { .. }) => {
                Ending::Mean { pooled: true }
            }
            (ending, _) => ending,
        }
    }

    /// Returns how the library's `Trainer` counts its labels.
    ///
    /// # Errors
    /// [`Error::Usage`] for a network that it cannot train, or that was not recorded with it.
    fn counting(&self) -> Result<Counting> {
        let ending = self.ending();
        let kind = self.family.kind();
        let problem = match (&ending, kind) {
            (Ending::Mean { .. }, _) => "a network without a loss is not trained by the library's Trainer",
            (Ending::Scores(_), _) => "",
            (_, Kind::EncoderDecoder) => {
                "vramlab does not support this head in the library's Trainer; --loop plain works"
            }
            _ => "",
        };
        if !problem.is_empty() {
            return Err(Error::usage("loop", problem));
        }
        let scores = matches!(ending, Ending::Scores(_));
        Ok(Counting {
            // The beginning and end of an answer are not under `labels`.
            counts: !matches!(ending, Ending::Span { .. }),
            // `_loss_shifts_labels`. GPT-2 names no `loss_type`, and is counted like the encoders.
            shifted: matches!(ending, Ending::Scores(Loss::NextToken { .. }))
                && !matches!(kind, Kind::Decoder { shifted: false, .. }),
            // These call a cross entropy of their own, as other heads do, without the count.
            passed: scores && !matches!(kind, Kind::Encoder { .. } | Kind::EncoderDecoder),
        })
    }

    /// The network with its loss, on one device.
    pub fn network(&self, init: &Init) -> memcore::Result<Network> {
        Ok(Network::new(self.family.body(init, &self.head)?, self.ending()))
    }
}

/// Network in a script that holds the result and computes the loss itself; the cache is freed with the forward pass.
impl Architecture for Pretrained {
    /// The `model_type`.
    fn name(&self) -> &str {
        self.known.name
    }

    fn description(&self) -> String {
        let s = self.sizes();
        self.head.describe(&format!("{} layers, {} wide, {} heads", s.layers, s.width, s.heads))
    }

    fn task(&self) -> Task {
        let kind = self.family.kind();
        if let Kind::Pictures { channels, side } = kind {
            let (input, classes) = (vec![channels, side, side], self.sizes().classes);
            let loss = if self.scores_targets() { Loss::CrossEntropy { classes } } else { Loss::Inside };
            return Task { input: Input::Values(input), loss };
        }
        let s = self.sizes();
        let (length, vocabulary) = (self.options.sequence.unwrap_or(s.positions), s.classes);
        let loss = match kind {
            _ if !self.scores_targets() => Loss::Inside,
            Kind::Encoder { .. } | Kind::EncoderDecoder => Loss::CrossEntropy { classes: vocabulary },
            _ => Loss::NextToken { classes: vocabulary },
        };
        Task { input: Input::Tokens { length, vocabulary }, loss }
    }

    fn defaults(&self) -> Defaults {
        // Images come in batches; one text already fills its context.
        let batch = if self.sees_pictures() { 8 } else { 1 };
        Defaults { batch, optimizer: "adamw", lr: 1e-4 }
    }

    /// Refuses what is not supported: batches that the library refuses, or whose temporaries are not recorded; token types of one position for
    /// several examples; weights that the library clamps for or keeps in another type.
    fn check(&self, batch: usize, weights: DType) -> Result<()> {
        self.family.check(batch)?;
        if self.family.kind() == Kind::EncoderDecoder && weights == DType::F16 {
            let problem = format!(
                "{} in float16 is not supported: the library clamps its hidden states and keeps some weights in float32; \
                 bf16 and autocast-fp16 are",
                self.known.name
            );
            return Err(Error::usage("precision", problem));
        }
        if let Ending::Example { last: true, padding, .. } = self.ending() {
            if padding.is_none() && batch > 1 {
                let problem = format!("{} needs pad_token_id for batches of more than one example", self.head.class);
                return Err(Error::usage("batch", problem));
            }
            if batch > ops::MAX_EACH {
                let problem = format!("{batch}: {} is supported for at most {}", self.head.class, ops::MAX_EACH);
                return Err(Error::usage("batch", problem));
            }
        }
        Ok(())
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(Sequential::from_modules(self.pieces(&|_| init.clone())?)))
    }

    fn one_length(&self) -> Option<&'static str> {
        None
    }

    fn indivisible(&self) -> Option<&'static str> {
        if self.family.kind() == Kind::EncoderDecoder {
            return Some(t5::TWO_STACKS);
        }
        if !self.scores_targets() {
            return Some(OWN_LOSS);
        }
        if self.options.end != End::Own {
            return Some("its loss is computed of its hidden states; without --loss it can be divided");
        }
        (self.options.attention_mask != AttentionMask::None)
            .then_some("its blocks are given a mask that comes with the batch")
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        if !self.scores_targets() {
            return Err(memcore::Error::invalid("head", OWN_LOSS));
        }
        Ok(pieces::all_pieces(self.family.parts(at, &self.head)?, at))
    }

    fn shares_ends(&self) -> bool {
        self.family.tied
    }

    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        self.family.optimizer_order(self.head.head, parameters)
    }
}
