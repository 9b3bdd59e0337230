//! The `model_type`s that are supported, one row each: which classes there are, what is known of them, and who reads the configuration.

use lab_base::error::Result;

use super::family::Family;
use super::head::{self, DECODERS, ENCODERS, OPT, PAIRS, PICTURES};
use super::head_config::HeadConfig;
use super::keys::Keys;
use super::options::Options;
use super::{bert, distilbert, gpt_neox, gpt2, llama, opt, phi3, t5, vit};

/// Reads the configuration of a family.
type Read = fn(&Keys<'_>, &HeadConfig, &Options) -> Result<Box<dyn Family>>;

/// A `model_type`.
pub(super) struct ModelType {
    pub name: &'static str,
    /// Its classes.
    pub classes: head::Family,
    /// The layers on which PEFT 0.21 puts adapters if no `target_modules` are given (its `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`); none if it
    /// does not list the `model_type`.
    pub adapted: &'static [&'static str],
    /// True for a decoder with RMS norms.
    pub rms_norms: bool,
    pub read: Read,
}

const fn row(
    name: &'static str,
    (prefix, heads, padding): (&'static str, &'static [head::Head], Option<u64>),
    adapted: &'static [&'static str],
    read: Read,
) -> ModelType {
    ModelType { name, classes: head::Family::new(prefix, heads, padding), adapted, rms_norms: false, read }
}

impl ModelType {
    const fn with_rms_norms(self) -> Self {
        Self { rms_norms: true, ..self }
    }

    /// The row of a `model_type`; `None` for one that is not supported.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|known| known.name == name)
    }
}

/// Heads of families without the last of the list.
const MOST_ENCODERS: &[head::Head] = ENCODERS.split_at(6).0;
const MOST_DECODERS: &[head::Head] = DECODERS.split_at(4).0;

const QV: &[&str] = &["q_proj", "v_proj"];

/// Every row, by name: class prefix, heads, default of `pad_token_id`; adapted layers; reader.
#[rustfmt::skip]
const ALL: &[ModelType] = &[
    row("bert", ("Bert", ENCODERS, Some(0)), &["query", "value"], |keys, head, options| Ok(Box::new(bert::Config::read(keys, "bert", head, options)?))),
    row("camembert", ("Camembert", MOST_ENCODERS, Some(1)), &[], |keys, head, options| Ok(Box::new(bert::Config::read(keys, "camembert", head, options)?))),
    row("distilbert", ("DistilBert", MOST_ENCODERS, Some(0)), &[], |keys, _, options| Ok(Box::new(distilbert::Config::read(keys, options)?))),
    row("gemma", ("Gemma", MOST_DECODERS, Some(0)), QV, |keys, _, options| llama(keys, llama::Form::Gemma, options)).with_rms_norms(),
    row("gpt2", ("GPT2", DECODERS, None), &["c_attn"], |keys, _, options| Ok(Box::new(gpt2::Config::read(keys, options)?))),
    row("gpt_neox", ("GPTNeoX", DECODERS, None), &["query_key_value"], |keys, _, options| Ok(Box::new(gpt_neox::Config::read(keys, options)?))),
    row("llama", ("Llama", DECODERS, None), QV, |keys, _, options| llama(keys, llama::Form::Llama, options)).with_rms_norms(),
    row("mistral", ("Mistral", DECODERS, None), QV, |keys, _, options| llama(keys, llama::Form::Mistral, options)).with_rms_norms(),
    row("mt5", ("MT5", PAIRS, Some(0)), &["q", "v"], |keys, head, options| Ok(Box::new(t5::Config::read(keys, t5::Form::Mt5, head, options)?))),
    row("opt", ("OPT", OPT, Some(1)), QV, |keys, _, options| Ok(Box::new(opt::Config::read(keys, options)?))),
    row("phi3", ("Phi3", MOST_DECODERS, Some(32_000)), &[], |keys, _, options| Ok(Box::new(phi3::Config::read(keys, options)?))).with_rms_norms(),
    row("qwen2", ("Qwen2", DECODERS, None), QV, |keys, _, options| llama(keys, llama::Form::Qwen2, options)).with_rms_norms(),
    row("qwen3", ("Qwen3", DECODERS, None), QV, |keys, _, options| llama(keys, llama::Form::Qwen3, options)).with_rms_norms(),
    row("roberta", ("Roberta", MOST_ENCODERS, Some(1)), &["query", "value"], |keys, head, options| Ok(Box::new(bert::Config::read(keys, "roberta", head, options)?))),
    row("t5", ("T5", PAIRS, Some(0)), &["q", "v"], |keys, head, options| Ok(Box::new(t5::Config::read(keys, t5::Form::T5, head, options)?))),
    row("vit", ("ViT", PICTURES, None), &[], |keys, head, options| Ok(Box::new(vit::Config::read(keys, head, options)?))),
    row("xlm-roberta", ("XLMRoberta", MOST_ENCODERS, Some(1)), &[], |keys, head, options| Ok(Box::new(bert::Config::read(keys, "xlm-roberta", head, options)?))),
];

fn llama(keys: &Keys<'_>, form: llama::Form, options: &Options) -> Result<Box<dyn Family>> {
    Ok(Box::new(llama::Config::read(keys, form, options)?))
}

/// The `model_type`s that are supported.
pub const MODEL_TYPES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        names[at] = ALL[at].name;
        at += 1;
    }
    names
};
