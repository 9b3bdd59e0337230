//! `gpt_neox`: `GPTNeoXForCausalLM`, the architecture of Pythia, and the other heads on `GPTNeoXModel`.

use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module};
use memcore::{Result, Tensor, context, ops};

use super::attention::{self, Call, Weights};
use super::blocks::{self, Context};
use super::guide::{self, Guide};
use super::head_config::HeadConfig;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::network::{Begun, Front, NormedHead, Parts, Variables};
use super::options::{Options, Sizes};
use super::rotary::{self, Angles, Rope, RopeKeys, RotaryEmbedding};
use crate::error;
use crate::models::Places;

/// What its configuration says.
#[derive(Clone, Debug)]
pub(super) struct Config {
    vocabulary: usize,
    positions: usize,
    width: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    activation: Activation,
    hidden_dropout: f64,
    attention_dropout: f64,
    eps: f64,
    parallel_residual: bool,
    attention_bias: bool,
    rope: Rope,
    tied: bool,
    use_cache: bool,
    options: Options,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let positions = keys.size("max_position_embeddings", 2048)?;
        let config = Self {
            vocabulary: keys.size("vocab_size", 50_432)?,
            positions,
            width: keys.size("hidden_size", 6144)?,
            layers: keys.size("num_hidden_layers", 44)?,
            heads: keys.size("num_attention_heads", 64)?,
            inner: keys.size("intermediate_size", 24_576)?,
            activation: Activation::named("hidden_act", keys.name("hidden_act", "gelu")?)?,
            hidden_dropout: keys.probability("hidden_dropout", 0.0)?,
            attention_dropout: keys.probability("attention_dropout", 0.0)?,
            eps: keys.number("layer_norm_eps", 1e-5)?,
            parallel_residual: keys.flag("use_parallel_residual", true)?,
            attention_bias: keys.flag("attention_bias", true)?,
            rope: Rope::read(
                keys,
                RopeKeys {
                    theta: "rotary_emb_base",
                    share: "rotary_pct",
                    usual_share: 0.25,
                    positions,
                    original: None,
                },
                options,
            )?,
            tied: keys.flag("tie_word_embeddings", false)?,
            use_cache: keys.flag("use_cache", true)?,
            options: options.clone(),
        };
        // Says what the model is, not how it computes.
        keys.get("is_decoder");
        keys.check_no_window()?;
        keys::divides(keys, "num_attention_heads", config.heads, config.width)?;
        config.rope.check(keys, config.turned())?;
        keys::fits(keys, options.sequence, config.positions)?;
        Ok(config)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let (layers, width, heads) = (self.layers, self.width, self.heads);
        Sizes { layers, width, heads, classes: self.vocabulary, positions: self.positions }
    }

    /// Elements of a head that are turned.
    fn turned(&self) -> usize {
        ((self.width / self.heads) as f64 * self.rope.share) as usize
    }

    /// # Errors
    /// Those of the device.
    pub(super) fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embed_in = Embedding::with_fill(&body(0).at("embed_in"), self.vocabulary, self.width, SMALL)?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self))?;
        let last = 1 + self.layers;
        let final_layer_norm = LayerNorm::new(&body(last).at("final_layer_norm"), self.width, self.eps)?;
        let guides = Guide::turning(
            &Parts::desks(at, self.layers),
            || Guide::decoder(&self.options, self.use_cache, true),
            |init| RotaryEmbedding::new(&init.at(BODY).at("rotary_emb"), &self.rope, self.turned()),
        )?;
        let sizes = [self.width, self.vocabulary];
        let lm_head = |init: &Init| layers::lm_head(init, &embed_in, self.tied, sizes, &self.options);
        let scores = head.on_decoder(&at(last), self.width, "classifier", lm_head)?;
        let emb_dropout = Dropout::new(&body(0).at("emb_dropout"), self.hidden_dropout)?;
        Ok(Parts {
            front: Box::new(Embeddings { embed_in, emb_dropout }),
            blocks,
            back: Box::new(NormedHead { norm: final_layer_norm, pooler: None, scores }),
            guides,
            body: BODY,
        })
    }

    /// Whether the output layer has the weights of the token table.
    pub(super) fn tied(&self) -> bool {
        self.tied
    }
}

/// All but the output layer.
const BODY: &str = "gpt_neox";

const SMALL: Fill = Fill::Normal { std: 0.02 };

struct Embeddings {
    embed_in: Embedding,
    emb_dropout: Dropout,
}

impl Front for Embeddings {
    fn forward(&self, ids: &Tensor, attention_mask: Option<&Tensor>, guide: Option<&Guide>) -> Result<Begun> {
        let embeds = self.embed_in.forward(ids)?;
        let Some(guide) = guide else {
            let hidden = self.emb_dropout.forward(&embeds)?;
            return Ok(Begun { hidden, context: Context::default(), variables: Variables(vec![embeds]) });
        };
        let cache = guide.cache();
        let positions = guide::positions(ids)?;
        let mask = guide.mask(&embeds, attention_mask)?;
        let hidden = self.emb_dropout.forward(&embeds)?;
        let rotary = guide.angles(&positions, hidden.dtype())?;
        let context = Context { mask, cache, rotary, _positions: Some(positions), ..Context::default() };
        Ok(Begun { hidden, context, variables: Variables(vec![embeds]) })
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
    input_layernorm: LayerNorm,
    post_attention_layernorm: LayerNorm,
    dropout: Dropout,
    query_key_value: Linear,
    dense: Linear,
    dense_h_to_4h: Linear,
    dense_4h_to_h: Linear,
}

impl Layer {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let (attention, mlp) = (init.at("attention"), init.at("mlp"));
        let linear = |init: Init, inputs, outputs, bias| Linear::with_fill(&init, inputs, outputs, bias, SMALL);
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            input_layernorm: LayerNorm::new(&init.at("input_layernorm"), c.width, c.eps)?,
            post_attention_layernorm: LayerNorm::new(&init.at("post_attention_layernorm"), c.width, c.eps)?,
            dropout: Dropout::new(&init.at("post_attention_dropout"), c.hidden_dropout)?,
            query_key_value: linear(attention.at("query_key_value"), c.width, 3 * c.width, c.attention_bias)?,
            dense: linear(attention.at("dense"), c.width, c.width, c.attention_bias)?,
            dense_h_to_4h: linear(mlp.at("dense_h_to_4h"), c.width, c.inner, true)?,
            dense_4h_to_h: linear(mlp.at("dense_4h_to_h"), c.inner, c.width, true)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &Context) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let head = width / c.heads;
        // Kept until the end, as the library's local variable is.
        let qkv = {
            let qkv = self.query_key_value.forward(hidden)?;
            attention::heads(&qkv, c.heads)?
        };
        let mut parts = ops::chunk(&qkv, 3, 3)?.into_iter();
        let missing = || memcore::Error::shape("attention", "a missing part of queries, keys and values");
        let mut part = || parts.next().ok_or_else(missing);
        let (q, k, v) = (part()?, part()?, part()?);
        let Angles { sin, cos } = context.rotary.as_ref().ok_or_else(missing)?;
        let (q, k) = partly_turned(q, k, cos, sin)?;
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            ..Call::new(c.options.attention, head, c.attention_dropout)
        };
        call.project([q, k, v], &self.dense)
    }

    /// The input lives as long as the call, as an argument of a module does.
    fn mlp(&self, input: &Tensor) -> Result<Tensor> {
        let mut hidden = self.dense_h_to_4h.forward(input)?;
        hidden = self.config.activation.apply(&hidden)?;
        self.dense_4h_to_h.forward(&hidden)
    }
}

/// Queries and keys with the first elements of each head turned, the others as they were.
fn partly_turned(q: Tensor, k: Tensor, cos: &Tensor, sin: &Tensor) -> Result<(Tensor, Tensor)> {
    let (cos, sin) = (ops::unsqueeze(cos, 1)?, ops::unsqueeze(sin, 1)?);
    let (turned, d) = (cos.dims()[3], q.dims()[3]);
    // All of a head is the head itself, by another name.
    let first = |x: &Tensor| if turned == d { ops::alias(x) } else { ops::narrow(x, 3, 0, turned) };
    let cut = |x: &Tensor| Ok::<_, memcore::Error>((first(x)?, ops::narrow(x, 3, turned, d - turned)?));
    let (q_rot, q_pass) = cut(&q)?;
    let (k_rot, k_pass) = cut(&k)?;
    let mut q_embed = rotary::turned(&q_rot, &cos, &sin)?;
    let mut k_embed = rotary::turned(&k_rot, &cos, &sin)?;
    q_embed = ops::cat(&[&q_embed, &q_pass], 3)?;
    k_embed = ops::cat(&[&k_embed, &k_pass], 3)?;
    Ok((q_embed, k_embed))
}

impl blocks::Block for Layer {
    fn forward(&self, hidden: &Tensor, context: &Context) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let (mut attended, _weights) = {
            let normed = self.input_layernorm.forward(hidden)?;
            self.attention(&normed, context)?
        };
        attended = self.dropout.forward(&attended)?;
        if self.config.parallel_residual {
            let mut fed = self.mlp(&self.post_attention_layernorm.forward(hidden)?)?;
            fed = self.dropout.forward(&fed)?;
            let mut sum = ops::add(&fed, &attended)?;
            sum = ops::add(&sum, hidden)?;
            drop((attended, fed));
            return Ok(sum);
        }
        attended = ops::add(&attended, hidden)?;
        let mut fed = self.mlp(&self.post_attention_layernorm.forward(&attended)?)?;
        fed = self.dropout.forward(&fed)?;
        let sum = ops::add(&fed, &attended)?;
        drop((attended, fed));
        Ok(sum)
    }
}
