//! `t5`: `T5ForConditionalGeneration`, an encoder and a decoder that looks at what the encoder made of the input.

mod attention;
mod bias;
mod block;
mod stack;

use memcore::nn::{Embedding, Fill, Init, Linear, Module};
use memcore::{Array, DType, Result, Tensor, context, ops};
use serde_json::Value;

use super::keys::Keys;
use super::layers::Activation;
use super::network::{Body, Hidden, Inputs, Variables};
use super::{Options, Sizes};
use crate::error;
use stack::Stack;

/// What its configuration says.
#[derive(Clone, Debug)]
pub(super) struct Config {
    vocabulary: usize,
    width: usize,
    /// Elements of a head; all heads together need not be as wide as the model.
    head: usize,
    heads: usize,
    inner: usize,
    layers: usize,
    decoder_layers: usize,
    buckets: usize,
    farthest: usize,
    dropout: f64,
    eps: f64,
    /// Factor of the initial values.
    factor: f64,
    activation: Activation,
    gated: bool,
    scales_outputs: bool,
    use_cache: bool,
    start: u32,
    /// Tokens of an example unless said: as many as the published ones were trained with.
    length: usize,
    options: Options,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let layers = keys.size("num_layers", 6)?;
        let (activation, gated) = feed_forward(keys)?;
        let config = Self {
            vocabulary: keys.size("vocab_size", 32_128)?,
            width: keys.size("d_model", 512)?,
            head: keys.size("d_kv", 64)?,
            heads: keys.size("num_heads", 8)?,
            inner: keys.size("d_ff", 2048)?,
            layers,
            decoder_layers: keys.optional_size("num_decoder_layers")?.unwrap_or(layers),
            buckets: keys.size("relative_attention_num_buckets", 32)?,
            farthest: keys.size("relative_attention_max_distance", 128)?,
            dropout: keys.probability("dropout_rate", 0.1)?,
            eps: keys.number("layer_norm_epsilon", 1e-6)?,
            factor: keys.number("initializer_factor", 1.0)?,
            activation,
            gated,
            // The library ties the weights whatever the file says, and takes what it says of that for whether outputs are scaled.
            scales_outputs: keys.flag("scale_decoder_outputs", keys.flag("tie_word_embeddings", true)?)?,
            use_cache: keys.flag("use_cache", true)?,
            start: start(keys)?,
            length: keys.size("n_positions", 512)?,
            options: options.clone(),
        };
        keys.expect("is_encoder_decoder", &Value::from(true), "an encoder or a decoder alone is not represented")?;
        keys.expect("is_decoder", &Value::from(false), "an encoder or a decoder alone is not represented")?;
        let fewest = 4;
        if config.buckets < fewest || config.farthest <= config.buckets / 2 {
            let problem = format!("{} buckets up to a distance of {}", config.buckets, config.farthest);
            return Err(
                keys.error("relative_attention_num_buckets", problem + ": at least 4, and farther than half of them")
            );
        }
        Ok(config)
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            layers: self.layers + self.decoder_layers,
            width: self.width,
            heads: self.heads,
            classes: self.vocabulary,
            positions: self.length,
        }
    }

    /// The network but for its loss.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn body(&self, init: &Init) -> Result<Box<dyn Body>> {
        let table = [self.vocabulary, self.width];
        let shared = Embedding::with_fill(&init.at("shared"), table[0], table[1], self.normal(1.0))?;
        // Made on the device, each place has weights of its own until they are tied.
        let own = || {
            let made = self.options.built_on_device.then(|| Array::empty(init.device(), &table, init.dtype()));
            made.transpose()
        };
        let encoder_table = own()?;
        let encoder = Stack::new(&init.at("encoder"), self, &shared, false)?;
        let decoder_table = own()?;
        let decoder = Stack::new(&init.at("decoder"), self, &shared, true)?;
        let head_table = own()?;
        drop((encoder_table, decoder_table, head_table));
        let head = init.at("lm_head");
        let lm_head = Linear::tied(&head, &head.shared(&shared.weight)?);
        let scale = self.scales_outputs.then(|| (self.width as f64).powf(-0.5));
        Ok(Box::new(Model { encoder, decoder, scale, lm_head, start: self.start }))
    }

    /// Initial values of so much spread.
    fn normal(&self, std: f64) -> Fill {
        Fill::Normal { std: self.factor * std }
    }
}

/// `feed_forward_proj`: the activation, and whether it gates another product.
fn feed_forward(keys: &Keys<'_>) -> error::Result<(Activation, bool)> {
    const KEY: &str = "feed_forward_proj";
    // The library writes these two beside it.
    let written = [keys.get("dense_act_fn").and_then(Value::as_str), keys.get("is_gated_act").map(|_| "")];
    let name = keys.name(KEY, "relu")?;
    let (gated, function) = match name.split_once('-') {
        Some(("gated", function)) => (true, function),
        Some(_) => return Err(keys.error(KEY, format!("{name:?} is neither an activation nor \"gated-\" and one"))),
        None => (false, name),
    };
    let function = if name == "gated-gelu" { "gelu_new" } else { function };
    if written[0].is_some_and(|written| written != function) || keys.flag("is_gated_act", gated)? != gated {
        return Err(keys.error(KEY, format!("{name:?}, but dense_act_fn or is_gated_act says another thing")));
    }
    Ok((Activation::named(KEY, function)?, gated))
}

/// `decoder_start_token_id`, which stands before the labels.
fn start(keys: &Keys<'_>) -> error::Result<u32> {
    const KEY: &str = "decoder_start_token_id";
    let given = keys.get(KEY).ok_or_else(|| keys.error(KEY, "is missing: the labels are moved behind it"))?;
    let number = given.as_u64().and_then(|n| u32::try_from(n).ok());
    number.ok_or_else(|| keys.error(KEY, format!("{given} is no token")))
}

struct Model {
    encoder: Stack,
    decoder: Stack,
    /// Factor of the decoder's output.
    scale: Option<f64>,
    lm_head: Linear,
    start: u32,
}

impl Model {
    /// What the decoder reads: the labels `[batch, time]` one place later, behind the token that begins.
    fn shift_right(&self, labels: &Tensor) -> Result<Tensor> {
        let (device, dims) = (labels.device(), labels.dims());
        let time = dims[1];
        let shifted = {
            let _op = context::op("new_zeros>new_empty");
            Array::zeros(device, dims, DType::I64)?
        };
        {
            let _op = context::op("clone");
            let kept = labels.array().narrow(1, 0, time - 1)?.copied()?;
            shifted.narrow(1, 1, time - 1)?.copy_(&kept)?;
        }
        shifted.narrow(1, 0, 1)?.fill_(f64::from(self.start))?;
        // Labels that count for nothing would be padding: batches here have none, but the library looks.
        let _op = context::op("eq");
        Array::empty(device, dims, DType::Bool)?;
        Ok(Tensor::from_array(shifted))
    }
}

impl Body for Model {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden> {
        let mask = inputs.attention_mask.as_ref();
        let (encoded, _) = self.encoder.forward(&inputs.input, mask, None)?;
        let ids = self.shift_right(&inputs.labels)?;
        let (last, caches) = self.decoder.forward(&ids, mask, Some(&encoded))?;
        let scaled = self.scale.map(|scale| ops::mul_scalar(&last, scale)).transpose()?;
        let output = scaled.clone().unwrap_or_else(|| last.clone());
        let variables = Variables([ids, last].into_iter().chain(scaled).collect());
        Ok(Hidden { last: output, caches, encoder: Some(encoded), variables })
    }

    fn scores(&self, hidden: &Tensor) -> Result<Tensor> {
        self.lm_head.forward(hidden)
    }
}
