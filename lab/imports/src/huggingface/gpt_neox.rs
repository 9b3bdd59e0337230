//! `gpt_neox`: `GPTNeoXForCausalLM`, the architecture of Pythia, and the other heads on `GPTNeoXModel`.

use lab_base::error;
use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module};
use memcore::{Result, Tensor, context, ops};

use super::attention::{self, Call, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common, SIZES};
use super::family::{Family, Kind};
use super::head_config::HeadConfig;
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::network::{EmbeddingOutput, InputEmbeddings, NormedHead, Parts, Variables};
use super::options::Options;
use super::rotary::{self, Angles, Rope, RopeKeys, RotaryEmbedding};
use super::stage::{self, Stage};

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    parallel_residual: bool,
    attention_bias: bool,
    rope: Rope,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let activation = Activation::read(keys, "hidden_act", "gelu")?;
        let mut common = Common::read(keys, options, SIZES, [50_432, 2048, 6144, 44, 64, 24_576], activation)?;
        common.dropout = keys.probability("hidden_dropout", 0.0)?;
        common.attention_dropout = keys.probability("attention_dropout", 0.0)?;
        common.eps = keys.number("layer_norm_eps", 1e-5)?;
        common.tied = keys.flag("tie_word_embeddings", false)?;
        common.use_cache = keys.flag("use_cache", true)?;
        let rope = RopeKeys {
            theta: "rotary_emb_base",
            share: "rotary_pct",
            usual_share: 0.25,
            positions: common.positions,
            original: None,
        };
        let own = Own {
            parallel_residual: keys.flag("use_parallel_residual", true)?,
            attention_bias: keys.flag("attention_bias", true)?,
            rope: Rope::read(keys, rope, options)?,
        };
        let config = Self { common, own };
        // Describes the model, not its computation.
        keys.get("is_decoder");
        keys.check_no_window()?;
        keys::divides(keys, "num_attention_heads", config.heads, config.width)?;
        config.own.rope.check(keys, config.rotated())?;
        keys::fits(keys, options.sequence, config.positions)?;
        Ok(config)
    }

    /// Returns the number of rotated elements of a head.
    fn rotated(&self) -> usize {
        ((self.width / self.heads) as f64 * self.own.rope.share) as usize
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Decoder { wide: true, shifted: true }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embed_in = Embedding::with_fill(&body(0).at("embed_in"), self.vocabulary, self.width, SMALL)?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self))?;
        let last = 1 + self.layers;
        let final_layer_norm = LayerNorm::new(&body(last).at("final_layer_norm"), self.width, self.eps)?;
        let stages = Parts::stages(at, self.layers, |init| {
            let rotary = RotaryEmbedding::new(&init.at(BODY).at("rotary_emb"), &self.own.rope, self.rotated())?;
            Ok(Stage::decoder(&self.options, self.use_cache, true).with_rotary(rotary))
        })?;
        let output = NormedHead::of_decoder(&at(last), self, head, "classifier", (final_layer_norm, &embed_in))?;
        let emb_dropout = Dropout::new(&body(0).at("emb_dropout"), self.dropout)?;
        Ok(Parts {
            embeddings: Box::new(Embeddings { embed_in, emb_dropout, marks: self.options.marks_embeds() }),
            blocks,
            output,
            stages,
            body: BODY,
        })
    }
}

/// Name of everything except the output layer.
const BODY: &str = "gpt_neox";

const SMALL: Fill = Fill::Normal { std: 0.02 };

struct Embeddings {
    embed_in: Embedding,
    emb_dropout: Dropout,
    marks: bool,
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, ids: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput> {
        let embeds = layers::embedded(&self.embed_in, ids, self.marks)?;
        let Some(stage) = stage else {
            let hidden = self.emb_dropout.forward(&embeds)?;
            return Ok(EmbeddingOutput { hidden, context: BlockInputs::default(), variables: Variables(vec![embeds]) });
        };
        let cache = stage.cache();
        let positions = said.positions.cloned().map_or_else(|| stage::positions(ids), Ok)?;
        let mask = stage.mask(&embeds, said)?;
        let hidden = self.emb_dropout.forward(&embeds)?;
        let rotary = stage.angles(&positions, hidden.dtype())?;
        let context = BlockInputs { mask, cache, rotary, _positions: Some(positions), ..BlockInputs::default() };
        Ok(EmbeddingOutput { hidden, context, variables: Variables(vec![embeds]) })
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
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
            weights_dropout: Dropout::new(&attention, c.attention_dropout)?,
            input_layernorm: LayerNorm::new(&init.at("input_layernorm"), c.width, c.eps)?,
            post_attention_layernorm: LayerNorm::new(&init.at("post_attention_layernorm"), c.width, c.eps)?,
            dropout: Dropout::new(&init.at("post_attention_dropout"), c.dropout)?,
            query_key_value: linear(attention.at("query_key_value"), c.width, 3 * c.width, c.own.attention_bias)?,
            dense: linear(attention.at("dense"), c.width, c.width, c.own.attention_bias)?,
            dense_h_to_4h: linear(mlp.at("dense_h_to_4h"), c.width, c.inner, true)?,
            dense_4h_to_h: linear(mlp.at("dense_4h_to_h"), c.inner, c.width, true)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
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
        let (q, k) = partly_rotated(q, k, cos, sin)?;
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            ..Call::new(c.options.attention, head, &self.weights_dropout)
        };
        call.project([q, k, v], &self.dense)
    }

    /// Applies the feed-forward layers. The input lives as long as the call, as an argument of a module does.
    fn mlp(&self, input: &Tensor) -> Result<Tensor> {
        let mut hidden = self.dense_h_to_4h.forward(input)?;
        hidden = self.config.activation.apply(&hidden)?;
        self.dense_4h_to_h.forward(&hidden)
    }
}

/// Rotates the first elements of each head of queries and keys; the others stay.
fn partly_rotated(q: Tensor, k: Tensor, cos: &Tensor, sin: &Tensor) -> Result<(Tensor, Tensor)> {
    let (cos, sin) = (ops::unsqueeze(cos, 1)?, ops::unsqueeze(sin, 1)?);
    let (rotated, d) = (cos.dims()[3], q.dims()[3]);
    // All of a head is the head itself under another name.
    let first = |x: &Tensor| if rotated == d { ops::alias(x) } else { ops::narrow(x, 3, 0, rotated) };
    let cut = |x: &Tensor| Ok::<_, memcore::Error>((first(x)?, ops::narrow(x, 3, rotated, d - rotated)?));
    let (q_rot, q_pass) = cut(&q)?;
    let (k_rot, k_pass) = cut(&k)?;
    let mut q_embed = rotary::rotated(&q_rot, &cos, &sin)?;
    let mut k_embed = rotary::rotated(&k_rot, &cos, &sin)?;
    q_embed = ops::cat(&[&q_embed, &q_pass], 3)?;
    k_embed = ops::cat(&[&k_embed, &k_pass], 3)?;
    Ok((q_embed, k_embed))
}

impl blocks::Block for Layer {
    fn forward(&self, hidden: &Tensor, context: &BlockInputs) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let (mut attended, _weights) = {
            let normed = self.input_layernorm.forward(hidden)?;
            self.attention(&normed, context)?
        };
        attended = self.dropout.forward(&attended)?;
        if self.config.own.parallel_residual {
            let mut ff = self.mlp(&self.post_attention_layernorm.forward(hidden)?)?;
            ff = self.dropout.forward(&ff)?;
            let mut sum = ops::add(&ff, &attended)?;
            sum = ops::add(&sum, hidden)?;
            drop((attended, ff));
            return Ok(sum);
        }
        attended = ops::add(&attended, hidden)?;
        let mut ff = self.mlp(&self.post_attention_layernorm.forward(&attended)?)?;
        ff = self.dropout.forward(&ff)?;
        let sum = ops::add(&ff, &attended)?;
        drop((attended, ff));
        Ok(sum)
    }
}
