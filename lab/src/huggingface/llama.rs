//! `llama`, `mistral`, `qwen2`, `qwen3` and `gemma`: `LlamaForCausalLM`, what differs from it in a bias, a window, or its norms, and their other heads.

use memcore::memory::{Category, ScopeId};
use memcore::nn::{Embedding, Fill, Init, Linear, Module};
use memcore::{Array, Result, Tensor, context, ops};

use super::attention::{self, Call, Weights};
use super::blocks::{self, Context};
use super::guide::Guide;
use super::head_config::HeadConfig;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::network::{Begun, Front, NormedHead, Parts, Variables};
use super::options::{Options, Sizes};
use super::rms;
use super::rotary::{self, Angles, Rope, RopeKeys, RotaryEmbedding};
use super::windows::{WindowKeys, Windows};
use crate::error;
use crate::models::Places;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `gemma`
    Gemma,
    /// `llama`
    Llama,
    /// `mistral`
    Mistral,
    /// `qwen2`
    Qwen2,
    /// `qwen3`
    Qwen3,
}

/// What stands for keys that are absent.
struct Usual {
    vocabulary: usize,
    width: usize,
    inner: usize,
    layers: usize,
    heads: usize,
    /// As many as there are heads, where none.
    key_heads: Option<usize>,
    /// The width divided by the heads, where none.
    head: Option<usize>,
    positions: usize,
}

impl Family {
    fn usual(self) -> Usual {
        let llama = Usual {
            vocabulary: 32_000,
            width: 4096,
            inner: 11_008,
            layers: 32,
            heads: 32,
            key_heads: None,
            head: None,
            positions: 2048,
        };
        let qwen = Usual { vocabulary: 151_936, inner: 22_016, positions: 32_768, key_heads: Some(32), ..llama };
        match self {
            Self::Gemma => Usual {
                vocabulary: 256_000,
                width: 3072,
                inner: 24_576,
                layers: 28,
                heads: 16,
                key_heads: Some(16),
                head: Some(256),
                positions: 8192,
            },
            Self::Llama => llama,
            Self::Mistral => Usual { inner: 14_336, positions: 131_072, key_heads: Some(8), ..llama },
            Self::Qwen2 => qwen,
            Self::Qwen3 => Usual { head: Some(128), ..qwen },
        }
    }

    fn windows(self, keys: &Keys<'_>, layers: usize) -> error::Result<Windows> {
        match self {
            Self::Gemma | Self::Llama => {
                keys.check_no_window()?;
                Ok(Windows::default())
            }
            Self::Mistral => Windows::read(keys, WindowKeys::One, layers),
            Self::Qwen2 | Self::Qwen3 => Windows::read(keys, WindowKeys::PerLayer, layers),
        }
    }

    /// The activation of the feed-forward layers. Gemma's files say `gelu` and mean its approximation.
    fn activation(self, keys: &Keys<'_>) -> error::Result<Activation> {
        if self != Self::Gemma {
            return Activation::named("hidden_act", keys.name("hidden_act", "silu")?);
        }
        // Of older releases.
        keys.get("hidden_activation");
        let name = keys.name("hidden_act", "gelu_pytorch_tanh")?;
        Activation::named("hidden_act", if name == "gelu" { "gelu_pytorch_tanh" } else { name })
    }

    fn norm(self) -> rms::Form {
        if self == Self::Gemma { rms::Form::OnePlusWeight } else { rms::Form::Weight }
    }
}

/// What its configuration says.
#[derive(Clone, Debug)]
pub(super) struct Config {
    family: Family,
    vocabulary: usize,
    positions: usize,
    width: usize,
    inner: usize,
    layers: usize,
    heads: usize,
    key_heads: usize,
    head: usize,
    activation: Activation,
    attention_dropout: f64,
    eps: f64,
    /// Of the projections to queries, keys and values; of the output's; of the feed-forward layer's.
    bias: [bool; 3],
    rope: Rope,
    tied: bool,
    use_cache: bool,
    windows: Windows,
    options: Options,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(super) fn read(keys: &Keys<'_>, family: Family, options: &Options) -> error::Result<Self> {
        let usual = family.usual();
        let (width, heads) = (keys.size("hidden_size", usual.width)?, keys.size("num_attention_heads", usual.heads)?);
        let key_heads = match keys.optional_size("num_key_value_heads")? {
            Some(n) => n,
            // A null means as many as there are query heads; an absent key the family's default.
            None if keys.is_null("num_key_value_heads") => heads,
            None => usual.key_heads.unwrap_or(heads),
        };
        let head = keys.optional_size("head_dim")?.or(usual.head);
        let layers = keys.size("num_hidden_layers", usual.layers)?;
        let positions = keys.size("max_position_embeddings", usual.positions)?;
        let has_bias = !matches!(family, Family::Mistral | Family::Qwen2);
        let attention_bias = has_bias && keys.flag("attention_bias", false)?;
        let mlp_bias = family == Family::Llama && keys.flag("mlp_bias", false)?;
        if family == Family::Gemma && keys.flag("use_bidirectional_attention", false)? {
            return Err(keys.error("use_bidirectional_attention", "attention in both directions is not represented"));
        }
        let config = Self {
            family,
            vocabulary: keys.size("vocab_size", usual.vocabulary)?,
            positions,
            width,
            inner: keys.size("intermediate_size", usual.inner)?,
            layers,
            heads,
            key_heads,
            head: head.unwrap_or(width / heads),
            activation: family.activation(keys)?,
            attention_dropout: keys.probability("attention_dropout", 0.0)?,
            eps: keys.number("rms_norm_eps", 1e-6)?,
            bias: [attention_bias || family == Family::Qwen2, attention_bias, mlp_bias],
            rope: Rope::read(
                keys,
                RopeKeys {
                    theta: "rope_theta",
                    share: "partial_rotary_factor",
                    usual_share: 1.0,
                    positions,
                    original: None,
                },
                options,
            )?,
            tied: keys.flag("tie_word_embeddings", family == Family::Gemma)?,
            use_cache: keys.flag("use_cache", true)?,
            windows: family.windows(keys, layers)?,
            options: options.clone(),
        };
        keys::divides(keys, "num_key_value_heads", config.key_heads, config.heads)?;
        if head.is_none() {
            keys::divides(keys, "num_attention_heads", config.heads, config.width)?;
        }
        keys::divides(keys, "head_dim", 2, config.head)?;
        config.rope.check(keys, config.head)?;
        if config.rope.share != 1.0 {
            return Err(keys.error("partial_rotary_factor", "heads turned in part are not represented for this model"));
        }
        keys::fits(keys, options.sequence, config.positions)?;
        config.windows.check(keys, options, config.positions)?;
        Ok(config)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let (layers, width, heads) = (self.layers, self.width, self.heads);
        Sizes { layers, width, heads, classes: self.vocabulary, positions: self.positions }
    }

    /// # Errors
    /// Those of the device.
    pub(super) fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embed_tokens = self.embeddings(&body(0).at("embed_tokens"))?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self, i))?;
        let last = 1 + self.layers;
        let norm = self.norm(&body(last).at("norm"), self.width)?;
        let guides = Guide::turning(
            &Parts::desks(at, self.layers),
            || {
                Guide::decoder(&self.options, self.use_cache, true)
                    .windowed(&self.windows)
                    .copying_triangle(matches!(self.family, Family::Llama | Family::Gemma))
            },
            |init| RotaryEmbedding::new(&init.at(BODY).at("rotary_emb"), &self.rope, self.head),
        )?;
        let sizes = [self.width, self.vocabulary];
        let lm_head = |init: &Init| layers::lm_head(init, &embed_tokens.table, self.tied, sizes, &self.options);
        let scores = head.on_decoder(&at(last), self.width, "score", lm_head)?;
        Ok(Parts {
            front: Box::new(embed_tokens),
            blocks,
            back: Box::new(NormedHead { norm, pooler: None, scores }),
            guides,
            body: BODY,
        })
    }

    fn norm(&self, init: &Init, width: usize) -> Result<rms::Norm> {
        rms::Norm::new(init, width, self.eps, self.family.norm())
    }

    /// Gemma's are multiplied with the root of the width.
    fn embeddings(&self, init: &Init) -> Result<Embeddings> {
        let table = Embedding::with_fill(init, self.vocabulary, self.width, SMALL)?;
        if self.family != Family::Gemma {
            return Ok(Embeddings { table, scale: Scale::None });
        }
        let root = (self.width as f64).sqrt();
        if self.options.rules().scales_by_number {
            return Ok(Embeddings { table, scale: Scale::Number(root) });
        }
        let _scope = context::scope(init.scope());
        // No part of what is saved.
        let scale = Array::empty_as(init.device(), &[], init.dtype(), Category::Buffer)?;
        scale.fill_(root)?;
        Ok(Embeddings { table, scale: Scale::Tensor(Tensor::from_array(scale)) })
    }

    /// Whether the output layer has the weights of the token table.
    pub(super) fn tied(&self) -> bool {
        self.tied
    }
}

/// All but the output layer.
const BODY: &str = "model";

const SMALL: Fill = Fill::Normal { std: 0.02 };

pub(super) struct Embeddings {
    pub(super) table: Embedding,
    pub(super) scale: Scale,
}

/// What embeddings are multiplied with.
pub(super) enum Scale {
    None,
    Number(f64),
    Tensor(Tensor),
}

impl Front for Embeddings {
    fn forward(&self, ids: &Tensor, attention_mask: Option<&Tensor>, guide: Option<&Guide>) -> Result<Begun> {
        let mut embeds = self.table.forward(ids)?;
        if let Scale::Tensor(scale) = &self.scale {
            embeds = ops::mul(&embeds, scale)?;
        }
        let context = match guide {
            Some(guide) => guide.context(&embeds, attention_mask)?,
            None => Context::default(),
        };
        let hidden = match &self.scale {
            // The embeddings live on beside it.
            Scale::Number(scale) => ops::mul_scalar(&embeds, *scale)?,
            _ => embeds.clone(),
        };
        Ok(Begun { hidden, context, variables: Variables(vec![embeds]) })
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
    window: Option<usize>,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    q_norm: Option<rms::Norm>,
    k_norm: Option<rms::Norm>,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    input_layernorm: rms::Norm,
    post_attention_layernorm: rms::Norm,
}

impl Layer {
    fn new(init: &Init, c: &Config, number: usize) -> Result<Self> {
        let (attn, mlp) = (init.at("self_attn"), init.at("mlp"));
        let linear = |init: Init, inputs, outputs, bias| Linear::with_fill(&init, inputs, outputs, bias, SMALL);
        let norm = |init: Init, width| c.norm(&init, width);
        let norms_heads = c.family == Family::Qwen3;
        let head_norm = |name| if norms_heads { norm(attn.at(name), c.head).map(Some) } else { Ok(None) };
        let [qkv, out, fed] = c.bias;
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            window: c.windows.of(number),
            q_proj: linear(attn.at("q_proj"), c.width, c.heads * c.head, qkv)?,
            k_proj: linear(attn.at("k_proj"), c.width, c.key_heads * c.head, qkv)?,
            v_proj: linear(attn.at("v_proj"), c.width, c.key_heads * c.head, qkv)?,
            o_proj: linear(attn.at("o_proj"), c.heads * c.head, c.width, out)?,
            q_norm: head_norm("q_norm")?,
            k_norm: head_norm("k_norm")?,
            gate_proj: linear(mlp.at("gate_proj"), c.width, c.inner, fed)?,
            up_proj: linear(mlp.at("up_proj"), c.width, c.inner, fed)?,
            down_proj: linear(mlp.at("down_proj"), c.inner, c.width, fed)?,
            input_layernorm: norm(init.at("input_layernorm"), c.width)?,
            post_attention_layernorm: norm(init.at("post_attention_layernorm"), c.width)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &Context) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [batch, time, _] = attention::sizes(hidden)?;
        let heads = |projection: &Linear, norm: &Option<rms::Norm>, heads: usize| {
            let projected = ops::view(&projection.forward(hidden)?, &[batch, time, heads, c.head])?;
            let normed = norm.as_ref().map(|norm| norm.forward(&projected)).transpose()?;
            ops::transpose(normed.as_ref().unwrap_or(&projected), 1, 2)
        };
        let q = heads(&self.q_proj, &self.q_norm, c.heads)?;
        let k = heads(&self.k_proj, &self.k_norm, c.key_heads)?;
        let v = heads(&self.v_proj, &None, c.key_heads)?;
        let (q, k) = turned(q, k, context)?;
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            repeats_keys: c.options.rules().repeats_keys,
            ..Call::new(c.options.attention, c.head, c.attention_dropout)
        };
        call.project([q, k, v], &self.o_proj)
    }

    fn mlp(&self, hidden: &Tensor) -> Result<Tensor> {
        let product = {
            let gate = {
                let gate = self.gate_proj.forward(hidden)?;
                self.config.activation.apply(&gate)?
            };
            let up = self.up_proj.forward(hidden)?;
            let product = ops::mul(&gate, &up)?;
            drop((gate, up));
            product
        };
        self.down_proj.forward(&product)
    }
}

/// Queries and keys turned by their positions' angles.
fn turned(q: Tensor, k: Tensor, context: &Context) -> Result<(Tensor, Tensor)> {
    let Some(Angles { sin, cos }) = &context.rotary else {
        return Err(memcore::Error::shape("rotary", "positions without angles"));
    };
    let (cos, sin) = (ops::unsqueeze(cos, 1)?, ops::unsqueeze(sin, 1)?);
    let both = (rotary::turned(&q, &cos, &sin)?, rotary::turned(&k, &cos, &sin)?);
    drop((q, k));
    Ok(both)
}

impl blocks::Block for Layer {
    fn window(&self) -> Option<usize> {
        self.window
    }

    fn forward(&self, input: &Tensor, context: &Context) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = self.input_layernorm.forward(input)?;
        let (attended, _weights) = self.attention(&hidden, context)?;
        hidden = attended;
        hidden = ops::add(input, &hidden)?;
        let residual = hidden.clone();
        hidden = self.post_attention_layernorm.forward(&hidden)?;
        hidden = self.mlp(&hidden)?;
        let sum = ops::add(&residual, &hidden)?;
        drop((hidden, residual));
        Ok(sum)
    }
}
