//! Reads a `config.json`: keys with the library's defaults, and what happens to the others.

use std::cell::RefCell;
use std::collections::BTreeSet;

use lab_base::error::{Error, Result};
use serde_json::{Map, Value};

/// Keys without effect on the memory of a training step: identity, tokens, generation, initial values, labels if the head has none.
const IRRELEVANT: &[&str] = &[
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cls_token_id",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "init_std",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "rms_norm_eps",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "typical_p",
    "use_bfloat16",
    "xla_device",
];

/// Keys whose presence (unless null, false, 0 or empty) means a computation that is not supported.
const REFUSED: &[(&str, &str)] = &[
    ("quantization_config", "quantized weights are not supported"),
    ("add_cross_attention", "cross-attention is not supported"),
    ("is_encoder_decoder", "encoders with decoders are not supported"),
    ("chunk_size_feed_forward", "a feed-forward layer in chunks is not supported"),
    ("output_attentions", "returned attention weights are not supported"),
    ("output_hidden_states", "returned hidden states are not supported"),
    ("pruned_heads", "pruned heads are not supported"),
    ("tie_encoder_decoder", "an encoder that shares its weights with the decoder is not supported"),
    ("torchscript", "weights that are copied for TorchScript are not supported"),
    ("per_layer_config", "layers with configurations of their own are not supported"),
    ("attention_chunk_size", "attention in chunks is not supported"),
];

/// Keys of a configuration, each read by name; keys never read are reported in the end.
pub(super) struct Keys<'a> {
    file: &'a str,
    map: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Keys<'a> {
    /// Makes the reader of a configuration in `file`.
    pub(crate) fn new(file: &'a str, map: &'a Map<String, Value>) -> Self {
        Self { file, map, asked: RefCell::default() }
    }

    /// Refuses keys that no network here supports, except those that this network reads itself.
    ///
    /// # Errors
    /// [`Error::Usage`] with the reason.
    pub(super) fn check_represented(&self, read: &[&str]) -> Result<()> {
        for (key, reason) in REFUSED.iter().filter(|(key, _)| !read.contains(key)) {
            if self.map.get(*key).is_some_and(|value| !is_nothing(value)) {
                return Err(self.error(key, *reason));
            }
        }
        Ok(())
    }

    /// Returns the file's name.
    pub(super) fn file(&self) -> &str {
        self.file
    }

    /// Makes an error about a key.
    pub(super) fn error(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::usage(format!("{}: {key}", self.file), problem)
    }

    /// Returns the value under `key`; `None` for null.
    pub(super) fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Reads a size of at least 1.
    ///
    /// # Errors
    /// [`Error::Usage`] for anything else; so do the others.
    pub(super) fn size(&self, key: &'static str, default: usize) -> Result<usize> {
        Ok(self.optional_size(key)?.unwrap_or(default))
    }

    /// Reads a size of at least 1, or none.
    pub(super) fn optional_size(&self, key: &'static str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_u64().filter(|&n| (1..=1 << 40).contains(&n));
        match number {
            Some(n) => Ok(Some(n as usize)),
            None => Err(self.error(key, format!("{value} is not a number from 1 to 2^40"))),
        }
    }

    /// Reads a number that may be 0 or a fraction.
    pub(super) fn number(&self, key: &'static str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_f64().ok_or_else(|| self.error(key, format!("{value} is not a number")))
    }

    pub(super) fn probability(&self, key: &'static str, default: f64) -> Result<f64> {
        let p = self.number(key, default)?;
        if (0.0..1.0).contains(&p) { Ok(p) } else { Err(self.error(key, format!("{p} is outside 0..1"))) }
    }

    pub(super) fn flag(&self, key: &'static str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.error(key, format!("{value} is neither true nor false")))
    }

    pub(super) fn name(&self, key: &'static str, default: &'a str) -> Result<&'a str> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.error(key, format!("{value} is not a name")))
    }

    /// Reads a whole number that may be 0.
    pub(super) fn count(&self, key: &'static str, default: usize) -> Result<usize> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
        number.ok_or_else(|| self.error(key, format!("{value} is not a number from 0")))
    }

    /// Reads a list of names, or none.
    pub(super) fn names(&self, key: &'static str) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let names = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        names.map(Some).ok_or_else(|| self.error(key, format!("{value} is not a list of names")))
    }

    /// True if `key` exists and is null.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    /// Returns the number of entries of an object.
    pub(super) fn map_len(&self, key: &'static str) -> Option<usize> {
        self.get(key)?.as_object().map(Map::len)
    }

    /// Checks the settings that the library takes from the file and that are chosen by options here: the file may agree or leave them out.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that contradicts them.
    pub(super) fn check_choices(&self, attention: &str, checkpoint: bool) -> Result<()> {
        if self.flag("gradient_checkpointing", false)? && !checkpoint {
            return Err(self.error("gradient_checkpointing", "true: say --checkpoint blocks, as the library then does"));
        }
        let attention = Value::from(attention);
        self.expect("attn_implementation", &attention, &format!("the network is asked for with {attention}"))?;
        self.expect("is_causal", &Value::from(true), "attention in both directions is not supported for this key")
    }

    /// Checks that all layers see everything, for an architecture without windows.
    ///
    /// # Errors
    /// [`Error::Usage`] for a configuration with other layers: the library would keep a cache for them.
    pub(super) fn check_no_window(&self) -> Result<()> {
        if self.get("sliding_window").is_some() {
            return Err(self.error("sliding_window", "this model's attention has no window"));
        }
        match self.names("layer_types")? {
            Some(kinds) if kinds.iter().any(|kind| *kind != "full_attention") => {
                Err(self.error("layer_types", format!("{kinds:?}: this model's layers see everything")))
            }
            _ => Ok(()),
        }
    }

    /// Checks that `key` is absent or has the supported value.
    ///
    /// # Errors
    /// [`Error::Usage`] with the reason.
    pub(super) fn expect(&self, key: &'static str, only: &Value, reason: &str) -> Result<()> {
        match self.get(key) {
            Some(value) if value != only => Err(self.error(key, format!("{value}: {reason}"))),
            _ => Ok(()),
        }
    }

    /// Returns a sentence for each key that was never read and is not known to be irrelevant.
    pub(super) fn unknown(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let known =
            |key: &str| asked.contains(key) || IRRELEVANT.contains(&key) || REFUSED.iter().any(|(k, _)| *k == key);
        let unknown = self.map.keys().filter(|key| !known(key));
        unknown.map(|key| format!("{}: {key}: unknown key, taken to say nothing about memory", self.file)).collect()
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// Checks that `parts` divides `whole`; [`Error::Usage`] otherwise.
pub(super) fn divides(keys: &Keys<'_>, key: &str, parts: usize, whole: usize) -> Result<()> {
    if whole.is_multiple_of(parts) {
        return Ok(());
    }
    Err(keys.error(key, format!("{parts} does not divide {whole}")))
}

/// Checks that there are positions for all tokens; [`Error::Usage`] otherwise.
pub(super) fn fits(keys: &Keys<'_>, sequence: Option<usize>, positions: usize) -> Result<()> {
    match sequence {
        Some(n) if n > positions => {
            Err(Error::usage("sequence", format!("{n}, but {} has {positions} positions", keys.file())))
        }
        _ => Ok(()),
    }
}
