//! T5's configuration.

use lab_base::error;
use memcore::nn::Fill;
use serde_json::Value;

use super::super::config::{self, Common};
use super::super::head::Head;
use super::super::head_config::HeadConfig;
use super::super::keys::Keys;
use super::super::layers::Activation;
use super::super::options::Options;

/// Settings of this family.
#[derive(Clone, Debug)]
pub(in super::super) struct Own {
    /// Elements of a head; all heads together need not be as wide as the model.
    pub(super) head: usize,
    pub(super) decoder_layers: usize,
    pub(super) buckets: usize,
    pub(super) farthest: usize,
    /// Factor of the initial values.
    pub(super) factor: f64,
    pub(super) gated: bool,
    pub(super) scales_outputs: bool,
    pub(super) start: u32,
}

/// Configuration of this family. Its positions are the tokens that the published networks were trained with.
pub(in super::super) type Config = config::Config<Own>;

const KEYS: [&str; 6] = ["vocab_size", "n_positions", "d_model", "num_layers", "num_heads", "d_ff"];

/// T5, or mT5, which differs only in its defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Form {
    T5,
    Mt5,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(in super::super) fn read(
        keys: &Keys<'_>,
        form: Form,
        head: &HeadConfig,
        options: &Options,
    ) -> error::Result<Self> {
        let decodes = matches!(head.head, Head::ConditionalGeneration | Head::QuestionAnswering);
        let t5 = form == Form::T5;
        let (activation, gated) = feed_forward(keys, if t5 { "relu" } else { "gated-gelu" })?;
        let sizes = if t5 { [32_128, 512, 512, 6, 8, 2048] } else { [250_112, 512, 512, 8, 6, 1024] };
        let mut common = Common::read(keys, options, KEYS, sizes, activation)?;
        common.dropout = keys.probability("dropout_rate", 0.1)?;
        common.eps = keys.number("layer_norm_epsilon", 1e-6)?;
        common.tied = true;
        common.use_cache = keys.flag("use_cache", true)?;
        let own = Own {
            head: keys.size("d_kv", 64)?,
            decoder_layers: keys.optional_size("num_decoder_layers")?.unwrap_or(common.layers),
            buckets: keys.size("relative_attention_num_buckets", 32)?,
            farthest: keys.size("relative_attention_max_distance", 128)?,
            factor: keys.number("initializer_factor", 1.0)?,
            gated,
            scales_outputs: scales_outputs(keys, form)?,
            start: if decodes { start(keys, form)? } else { 0 },
        };
        if decodes {
            keys.expect("is_encoder_decoder", &Value::from(true), "a decoder alone is not supported")?;
        }
        // Not used without the decoder.
        keys.get("decoder_start_token_id");
        keys.expect("is_decoder", &Value::from(false), "an encoder or a decoder alone is not supported")?;
        if own.buckets < 4 || own.farthest <= own.buckets / 2 {
            let problem = format!("{} buckets up to a distance of {}", own.buckets, own.farthest);
            return Err(
                keys.error("relative_attention_num_buckets", problem + ": at least 4, and farther than half of them")
            );
        }
        Ok(Self { common, own })
    }

    /// Returns initial values with this standard deviation.
    pub(super) fn normal(&self, std: f64) -> Fill {
        Fill::Normal { std: self.own.factor * std }
    }
}

/// Reads `feed_forward_proj`: the activation, and whether it gates a second product.
fn feed_forward(keys: &Keys<'_>, unless_said: &'static str) -> error::Result<(Activation, bool)> {
    const KEY: &str = "feed_forward_proj";
    let name = keys.name(KEY, unless_said)?;
    let (gated, function) = match name.split_once('-') {
        Some(("gated", function)) => (true, function),
        Some(_) => return Err(keys.error(KEY, format!("{name:?} is neither an activation nor \"gated-\" and one"))),
        None => (false, name),
    };
    let function = if name == "gated-gelu" { "gelu_new" } else { function };
    // The library also writes these two keys.
    if keys.name("dense_act_fn", function)? != function || keys.flag("is_gated_act", gated)? != gated {
        return Err(keys.error(KEY, format!("{name:?}, but dense_act_fn or is_gated_act says another thing")));
    }
    Ok((Activation::named(KEY, function)?, gated))
}

/// True if the decoder's results are scaled before the head. The library ties the weights whatever the file says, and uses T5's key for tying to
/// decide the scaling.
fn scales_outputs(keys: &Keys<'_>, form: Form) -> error::Result<bool> {
    let tied = keys.flag("tie_word_embeddings", true)?;
    if form == Form::Mt5 {
        return Ok(false);
    }
    keys.flag("scale_decoder_outputs", tied)
}

/// Returns `decoder_start_token_id`, the token before the labels.
fn start(keys: &Keys<'_>, form: Form) -> error::Result<u32> {
    const KEY: &str = "decoder_start_token_id";
    let Some(given) = keys.get(KEY) else {
        return match form {
            Form::T5 => Err(keys.error(KEY, "is missing: the labels are shifted to follow it")),
            Form::Mt5 => Ok(0),
        };
    };
    let number = given.as_u64().and_then(|n| u32::try_from(n).ok());
    number.ok_or_else(|| keys.error(KEY, format!("{given} is not a token")))
}
