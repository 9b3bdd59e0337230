//! `phi3`: `Phi3ForCausalLM`, a Llama whose projections are joined and whose heads may be rotated in part.

use lab_base::error;
use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, Linear, Module};
use memcore::{Result, Tensor, context, ops};

use super::attention::{self, Call, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common, SIZES};
use super::family::{Family, Kind};
use super::head_config::HeadConfig;
use super::keys::{self, Keys};
use super::layers::Activation;
use super::llama::{Embeddings, Scale};
use super::network::{NormedHead, Parts};
use super::options::Options;
use super::rms;
use super::rotary::{self, Angles, Rope, RopeKeys, RotaryEmbedding};
use super::stage::Stage;
use super::windows::{WindowKeys, Windows};

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    key_heads: usize,
    /// Elements of a head.
    head: usize,
    rope: Rope,
    windows: Windows,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let activation = Activation::read(keys, "hidden_act", "silu")?;
        let mut common = Common::read(keys, options, SIZES, [32_064, 4096, 3072, 32, 32, 8192], activation)?;
        let Common { positions, width, layers, heads, .. } = common;
        // Read and not used, as the library does.
        keys.get("embd_pdrop");
        keys::divides(keys, "num_attention_heads", heads, width)?;
        common.dropout = keys.probability("resid_pdrop", 0.0)?;
        common.attention_dropout = keys.probability("attention_dropout", 0.0)?;
        common.eps = keys.number("rms_norm_eps", 1e-5)?;
        common.tied = keys.flag("tie_word_embeddings", false)?;
        common.use_cache = keys.flag("use_cache", true)?;
        let names = RopeKeys {
            theta: "rope_theta",
            share: "partial_rotary_factor",
            usual_share: 1.0,
            positions,
            original: Some(4096),
        };
        let own = Own {
            key_heads: keys.optional_size("num_key_value_heads")?.unwrap_or(heads),
            head: keys.optional_size("head_dim")?.unwrap_or(width / heads),
            rope: Rope::read(keys, names, options)?,
            windows: Windows::read(keys, WindowKeys::OneIfSaid, layers)?,
        };
        let config = Self { common, own };
        keys::divides(keys, "num_key_value_heads", config.own.key_heads, config.heads)?;
        if !config.own.rope.is_default() && !config.own.rope.is_longrope() {
            return Err(keys.error("rope_scaling", "this model knows default and longrope"));
        }
        // An odd number of rotated elements is rounded up.
        if config.rotated() == 0 || config.rotated().next_multiple_of(2) > config.own.head {
            let problem = format!("{} of {} elements rotated is not supported", config.rotated(), config.own.head);
            return Err(keys.error("partial_rotary_factor", problem));
        }
        config.own.rope.check(keys, config.rotated())?;
        keys::fits(keys, options.sequence, config.positions)?;
        config.own.windows.check(keys, options, config.positions)?;
        Ok(config)
    }

    /// Returns the number of rotated elements of a head.
    fn rotated(&self) -> usize {
        (self.own.head as f64 * self.own.rope.share) as usize
    }

    fn norm(&self, init: &Init) -> Result<rms::Norm> {
        let form = if self.options.by_liger() { rms::Form::Liger } else { rms::Form::Weight };
        rms::Norm::new(init, self.width, self.eps, form)
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Decoder { wide: true, shifted: true }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let table = Embedding::with_fill(&body(0).at("embed_tokens"), self.vocabulary, self.width, SMALL)?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self))?;
        let last = 1 + self.layers;
        let norm = self.norm(&body(last).at("norm"))?;
        let stages = Parts::stages(at, self.layers, |init| {
            let rotary = RotaryEmbedding::new(&init.at(BODY).at("rotary_emb"), &self.own.rope, self.rotated())?;
            Ok(Stage::decoder(&self.options, self.use_cache, true).windowed(&self.own.windows).with_rotary(rotary))
        })?;
        let output = NormedHead::of_decoder(&at(last), self, head, "score", (norm, &table))?;
        let embeddings = Box::new(Embeddings { table, scale: Scale::None, marks: self.options.marks_embeds() });
        Ok(Parts { embeddings, blocks, output, stages, body: BODY })
    }
}

/// Name of everything except the output layer.
const BODY: &str = "model";

const SMALL: Fill = Fill::Normal { std: 0.02 };

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
    dropout: Dropout,
    window: Option<usize>,
    o_proj: Linear,
    qkv_proj: Linear,
    gate_up_proj: Linear,
    down_proj: Linear,
    input_layernorm: rms::Norm,
    post_attention_layernorm: rms::Norm,
}

impl Layer {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let (attn, mlp) = (init.at("self_attn"), init.at("mlp"));
        let linear = |init: Init, inputs, outputs| Linear::with_fill(&init, inputs, outputs, false, SMALL);
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attn, c.attention_dropout)?,
            dropout: Dropout::new(init, c.dropout)?,
            window: c.own.windows.window_at(0),
            o_proj: linear(attn.at("o_proj"), c.heads * c.own.head, c.width)?,
            qkv_proj: linear(attn.at("qkv_proj"), c.width, (c.heads + 2 * c.own.key_heads) * c.own.head)?,
            gate_up_proj: linear(mlp.at("gate_up_proj"), c.width, 2 * c.inner)?,
            down_proj: linear(mlp.at("down_proj"), c.inner, c.width)?,
            input_layernorm: c.norm(&init.at("input_layernorm"))?,
            post_attention_layernorm: c.norm(&init.at("post_attention_layernorm"))?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let qkv = self.qkv_proj.forward(hidden)?;
        // All three are sliced before any is viewed as heads: the backward pass runs in reverse order.
        let part = |before: usize, heads: usize| ops::narrow(&qkv, 2, before * c.own.head, heads * c.own.head);
        let (q, k) = (part(0, c.heads)?, part(c.heads, c.own.key_heads)?);
        let v = part(c.heads + c.own.key_heads, c.own.key_heads)?;
        let (q, k) = (attention::heads(&q, c.heads)?, attention::heads(&k, c.own.key_heads)?);
        let v = attention::heads(&v, c.own.key_heads)?;
        let (q, k) = rotated(&q, &k, context, c.options.by_liger())?;
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            ..Call::new(c.options.attention, c.own.head, &self.weights_dropout)
        };
        call.project([q, k, v], &self.o_proj)
    }

    fn mlp(&self, hidden: &Tensor) -> Result<Tensor> {
        let inner = self.config.inner;
        let both = self.gate_up_proj.forward(hidden)?;
        let halves = ops::split(&both, inner, 2)?;
        let [gate, up] = &halves[..] else { return Err(memcore::Error::shape("mlp", "other than two halves")) };
        if self.config.options.by_liger() {
            let product = ops::liger_gated(gate, up, "LigerSiLUMulFunction")?;
            return self.down_proj.forward(&product);
        }
        let product = {
            let gate = self.config.activation.apply(gate)?;
            ops::mul(up, &gate)?
        };
        self.down_proj.forward(&product)
    }
}

/// Rotates the first elements of queries and keys by their positions' angles.
fn rotated(q: &Tensor, k: &Tensor, context: &BlockInputs, by_liger: bool) -> Result<(Tensor, Tensor)> {
    let Some(Angles { sin, cos }) = &context.rotary else {
        return Err(memcore::Error::shape("rotary", "positions without angles"));
    };
    if by_liger {
        return ops::liger_rope([q, k], [cos, sin]).map(|[q, k]| (q, k));
    }
    let (cos, sin) = (ops::unsqueeze(cos, 1)?, ops::unsqueeze(sin, 1)?);
    let parts = |x: &Tensor| {
        let (head, part) = (x.dims()[3], cos.dims()[3]);
        // A slice of everything is the tensor itself.
        let turning = if part == head { ops::alias(x)? } else { ops::narrow(x, 3, 0, part)? };
        Ok::<_, memcore::Error>([turning, ops::narrow(x, 3, part, head - part)?])
    };
    // Both are sliced before either is rotated: the backward pass runs in reverse order.
    let (q, k) = (parts(q)?, parts(k)?);
    let turn = |[turning, passing]: &[Tensor; 2]| {
        let rotated = rotary::rotated(turning, &cos, &sin)?;
        ops::cat(&[&rotated, passing], 3)
    };
    Ok((turn(&q)?, turn(&k)?))
}

impl blocks::Block for Layer {
    fn window(&self) -> Option<usize> {
        self.window
    }

    fn forward(&self, input: &Tensor, context: &BlockInputs) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let dropout = |x: &Tensor| self.dropout.forward(x);
        let mut hidden = self.input_layernorm.forward(input)?;
        let (attended, _weights) = self.attention(&hidden, context)?;
        hidden = attended;
        hidden = {
            let dropped = dropout(&hidden)?;
            ops::add(input, &dropped)?
        };
        let residual = hidden.clone();
        hidden = self.post_attention_layernorm.forward(&hidden)?;
        hidden = self.mlp(&hidden)?;
        let dropped = dropout(&hidden)?;
        let sum = ops::add(&residual, &dropped)?;
        drop((dropped, hidden, residual));
        Ok(sum)
    }
}
