//! What a configuration says.

use memcore::nn::Fill;
use serde_json::Value;

use super::super::head::Head;
use super::super::head_config::HeadConfig;
use super::super::keys::Keys;
use super::super::layers::Activation;
use super::super::options::{Options, Sizes};
use crate::error;

/// What its configuration says.
#[derive(Clone, Debug)]
pub(in super::super) struct Config {
    pub(super) vocabulary: usize,
    pub(super) width: usize,
    /// Elements of a head; all heads together need not be as wide as the model.
    pub(super) head: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) layers: usize,
    pub(super) decoder_layers: usize,
    pub(super) buckets: usize,
    pub(super) farthest: usize,
    pub(super) dropout: f64,
    pub(super) eps: f64,
    /// Factor of the initial values.
    pub(super) factor: f64,
    pub(super) activation: Activation,
    pub(super) gated: bool,
    pub(super) scales_outputs: bool,
    pub(super) use_cache: bool,
    pub(super) start: u32,
    /// Tokens of an example unless said: as many as the published ones were trained with.
    pub(super) length: usize,
    pub(super) options: Options,
}

/// T5, or mT5, which is the same but for what holds unless said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Family {
    T5,
    Mt5,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(in super::super) fn read(
        keys: &Keys<'_>,
        family: Family,
        head: &HeadConfig,
        options: &Options,
    ) -> error::Result<Self> {
        let decodes = matches!(head.head, Head::ConditionalGeneration | Head::QuestionAnswering);
        let by_family = |t5: usize, mt5: usize| if family == Family::T5 { t5 } else { mt5 };
        let layers = keys.size("num_layers", by_family(6, 8))?;
        let (activation, gated) = feed_forward(keys, if family == Family::T5 { "relu" } else { "gated-gelu" })?;
        let config = Self {
            vocabulary: keys.size("vocab_size", by_family(32_128, 250_112))?,
            width: keys.size("d_model", 512)?,
            head: keys.size("d_kv", 64)?,
            heads: keys.size("num_heads", by_family(8, 6))?,
            inner: keys.size("d_ff", by_family(2048, 1024))?,
            layers,
            decoder_layers: keys.optional_size("num_decoder_layers")?.unwrap_or(layers),
            buckets: keys.size("relative_attention_num_buckets", 32)?,
            farthest: keys.size("relative_attention_max_distance", 128)?,
            dropout: keys.probability("dropout_rate", 0.1)?,
            eps: keys.number("layer_norm_epsilon", 1e-6)?,
            factor: keys.number("initializer_factor", 1.0)?,
            activation,
            gated,
            scales_outputs: scales_outputs(keys, family)?,
            use_cache: keys.flag("use_cache", true)?,
            start: if decodes { start(keys, family)? } else { 0 },
            length: keys.size("n_positions", 512)?,
            options: options.clone(),
        };
        if decodes {
            keys.expect("is_encoder_decoder", &Value::from(true), "a decoder alone is not represented")?;
        }
        // Where the decoder is not used.
        keys.get("decoder_start_token_id");
        keys.expect("is_decoder", &Value::from(false), "an encoder or a decoder alone is not represented")?;
        if config.buckets < 4 || config.farthest <= config.buckets / 2 {
            let problem = format!("{} buckets up to a distance of {}", config.buckets, config.farthest);
            return Err(
                keys.error("relative_attention_num_buckets", problem + ": at least 4, and farther than half of them")
            );
        }
        Ok(config)
    }

    pub(in super::super) fn sizes(&self) -> Sizes {
        Sizes {
            layers: self.layers + self.decoder_layers,
            width: self.width,
            heads: self.heads,
            classes: self.vocabulary,
            positions: self.length,
        }
    }

    /// Initial values of so much spread.
    pub(super) fn normal(&self, std: f64) -> Fill {
        Fill::Normal { std: self.factor * std }
    }
}

/// `feed_forward_proj`: the activation, and whether it gates another product.
fn feed_forward(keys: &Keys<'_>, unless_said: &'static str) -> error::Result<(Activation, bool)> {
    const KEY: &str = "feed_forward_proj";
    let name = keys.name(KEY, unless_said)?;
    let (gated, function) = match name.split_once('-') {
        Some(("gated", function)) => (true, function),
        Some(_) => return Err(keys.error(KEY, format!("{name:?} is neither an activation nor \"gated-\" and one"))),
        None => (false, name),
    };
    let function = if name == "gated-gelu" { "gelu_new" } else { function };
    // The library writes these two beside it.
    if keys.name("dense_act_fn", function)? != function || keys.flag("is_gated_act", gated)? != gated {
        return Err(keys.error(KEY, format!("{name:?}, but dense_act_fn or is_gated_act says another thing")));
    }
    Ok((Activation::named(KEY, function)?, gated))
}

/// Whether the decoder's results are scaled before the head. The library ties the weights whatever the file says, and takes what T5's says of that for
/// this.
fn scales_outputs(keys: &Keys<'_>, family: Family) -> error::Result<bool> {
    let tied = keys.flag("tie_word_embeddings", true)?;
    if family == Family::Mt5 {
        return Ok(false);
    }
    keys.flag("scale_decoder_outputs", tied)
}

/// `decoder_start_token_id`, which stands before the labels.
fn start(keys: &Keys<'_>, family: Family) -> error::Result<u32> {
    const KEY: &str = "decoder_start_token_id";
    let Some(given) = keys.get(KEY) else {
        return match family {
            Family::T5 => Err(keys.error(KEY, "is missing: the labels are moved behind it")),
            Family::Mt5 => Ok(0),
        };
    };
    let number = given.as_u64().and_then(|n| u32::try_from(n).ok());
    number.ok_or_else(|| keys.error(KEY, format!("{given} is no token")))
}
