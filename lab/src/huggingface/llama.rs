//! `llama`, `mistral`, `qwen2` and `qwen3`: `LlamaForCausalLM` and what differs from it in a bias, a window, or norms of queries and keys.

use memcore::memory::ScopeId;
use memcore::nn::{Embedding, Fill, Init, Linear, Module, Parameter};
use memcore::{DType, Result, Tensor, context, ops};

use super::attention::{self, Call, Weights};
use super::blocks::{self, Context};
use super::guide::Guide;
use super::keys::Keys;
use super::layers::{self, Activation};
use super::network::{Back, Begun, Front, Parts, Variables};
use super::rotary::{self, Rope, RotaryEmbedding};
use super::{Options, Sizes};
use crate::error;
use crate::models::Places;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `llama`
    Llama,
    /// `mistral`
    Mistral,
    /// `qwen2`
    Qwen2,
    /// `qwen3`
    Qwen3,
}

impl Family {
    /// Whether some layers may have a window and others none.
    fn mixes(self) -> bool {
        matches!(self, Self::Qwen2 | Self::Qwen3)
    }
}

/// What its configuration says.
#[derive(Clone, Debug)]
pub(super) struct Config {
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
    /// Whether each head's queries and keys are normalised.
    head_norms: bool,
    tied: bool,
    use_cache: bool,
    windows: Windows,
    options: Options,
}

/// Which positions the layers see.
#[derive(Clone, Debug, Default)]
struct Windows {
    /// Tokens that a position sees in a layer with a window.
    length: Option<usize>,
    /// The layers that have one.
    layers: Vec<bool>,
    /// Whether the model makes the mask of layers that see everything, even where there are none.
    mixed: bool,
}

impl Windows {
    /// # Errors
    /// Layers of another kind than full and sliding attention; a window where the library has none.
    fn read(keys: &Keys<'_>, family: Family, layers: usize) -> error::Result<Self> {
        let length = keys.optional_size("sliding_window")?;
        let kinds = keys.names("layer_types")?;
        let length = match family {
            Family::Llama if length.is_some() => {
                return Err(keys.error("sliding_window", "this model's attention has no window"));
            }
            Family::Llama => None,
            Family::Mistral if keys.is_null("sliding_window") => None,
            Family::Mistral => Some(length.unwrap_or(4096)),
            _ if !keys.flag("use_sliding_window", false)? || keys.is_null("sliding_window") => None,
            _ => Some(length.unwrap_or(4096)),
        };
        let first = if family.mixes() { keys.count("max_window_layers", 28)? } else { 0 };
        let slides: Vec<bool> = match kinds {
            Some(kinds) => {
                if kinds.len() != layers || kinds.iter().any(|k| !["full_attention", "sliding_attention"].contains(k)) {
                    return Err(keys.error("layer_types", format!("{kinds:?} for {layers} layers is not represented")));
                }
                kinds.iter().map(|kind| *kind == "sliding_attention").collect()
            }
            None => (0..layers).map(|i| length.is_some() && i >= first).collect(),
        };
        let uniform = slides.iter().all(|&slide| slide == length.is_some());
        if slides.contains(&true) && length.is_none() || !family.mixes() && !uniform {
            return Err(keys.error("layer_types", "says another thing about the windows than sliding_window"));
        }
        Ok(Self { length, layers: slides, mixed: family.mixes() })
    }

    /// Of a layer.
    fn of(&self, layer: usize) -> Option<usize> {
        self.length.filter(|_| self.layers.get(layer).is_some_and(|&slides| slides))
    }

    /// The length, where a layer has one.
    fn used(&self) -> Option<usize> {
        self.length.filter(|_| self.layers.contains(&true))
    }

    /// Whether the mask of layers that see everything is made.
    fn masks_all(&self) -> bool {
        self.mixed || self.used().is_none()
    }

    /// Whether a sequence of `time` tokens reaches one.
    fn reached_by(&self, time: usize) -> bool {
        self.layers.contains(&true) && self.length.is_some_and(|length| time >= length)
    }
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(super) fn read(keys: &Keys<'_>, family: Family, options: &Options) -> error::Result<Self> {
        let (inner, positions, key_heads) = match family {
            Family::Llama => (11_008, 2048, None),
            Family::Mistral => (14_336, 131_072, Some(8)),
            Family::Qwen2 | Family::Qwen3 => (22_016, 32_768, Some(32)),
        };
        let vocabulary = if family.mixes() { 151_936 } else { 32_000 };
        let (width, heads) = (keys.size("hidden_size", 4096)?, keys.size("num_attention_heads", 32)?);
        let key_heads = match keys.optional_size("num_key_value_heads")? {
            Some(n) => n,
            // A null means as many as there are query heads; an absent key the family's default.
            None if keys.is_null("num_key_value_heads") => heads,
            None => key_heads.unwrap_or(heads),
        };
        let head = keys.optional_size("head_dim")?.or((family == Family::Qwen3).then_some(128));
        let layers = keys.size("num_hidden_layers", 32)?;
        let attention_bias = [Family::Llama, Family::Qwen3].contains(&family) && keys.flag("attention_bias", false)?;
        let mlp_bias = family == Family::Llama && keys.flag("mlp_bias", false)?;
        let positions = keys.size("max_position_embeddings", positions)?;
        let config = Self {
            vocabulary: keys.size("vocab_size", vocabulary)?,
            positions,
            width,
            inner: keys.size("intermediate_size", inner)?,
            layers,
            heads,
            key_heads,
            head: head.unwrap_or(width / heads),
            activation: Activation::named("hidden_act", keys.name("hidden_act", "silu")?)?,
            attention_dropout: keys.probability("attention_dropout", 0.0)?,
            eps: keys.number("rms_norm_eps", 1e-6)?,
            bias: [attention_bias || family == Family::Qwen2, attention_bias, mlp_bias],
            rope: Rope::read(keys, "rope_theta", "partial_rotary_factor", 1.0, positions, options)?,
            head_norms: family == Family::Qwen3,
            tied: keys.flag("tie_word_embeddings", false)?,
            use_cache: keys.flag("use_cache", true)?,
            windows: Windows::read(keys, family, layers)?,
            options: options.clone(),
        };
        super::divides(keys, "num_key_value_heads", config.key_heads, config.heads)?;
        if head.is_none() {
            super::divides(keys, "num_attention_heads", config.heads, config.width)?;
        }
        super::divides(keys, "head_dim", 2, config.head)?;
        if config.rope.share != 1.0 {
            return Err(keys.error("partial_rotary_factor", "heads turned in part are not represented for this model"));
        }
        super::fits(keys, options.sequence, config.positions)?;
        config.check_window(keys)?;
        Ok(config)
    }

    /// What a window needs and is not represented.
    fn check_window(&self, keys: &Keys<'_>) -> error::Result<()> {
        let length = self.options.sequence.unwrap_or(self.positions);
        if self.windows.reached_by(length) && (self.options.attention_mask || length == 1) {
            let problem = "a window that a batch of one token, or with an attention_mask, reaches is not represented";
            return Err(keys.error("sliding_window", problem));
        }
        Ok(())
    }

    /// Elements of a head, and whether the fused attention is given a mask.
    pub(super) fn head_and_mask(&self) -> (usize, bool) {
        (self.head, self.windows.reached_by(self.options.sequence.unwrap_or(self.positions)))
    }

    pub(super) fn sizes(&self) -> Sizes {
        let (layers, width, heads) = (self.layers, self.width, self.heads);
        Sizes { layers, width, heads, classes: self.vocabulary, positions: self.positions }
    }

    /// # Errors
    /// Those of the device.
    pub(super) fn parts(&self, at: &Places<'_>) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embed_tokens = Embedding::with_fill(&body(0).at("embed_tokens"), self.vocabulary, self.width, SMALL)?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self, i))?;
        let last = 1 + self.layers;
        let norm = Norm::new(&body(last).at("norm"), self.width, self.eps)?;
        let guides = Guide::turning(
            &Parts::desks(at, self.layers),
            || {
                Guide::decoder(&self.options, self.use_cache, true)
                    .windowed(self.windows.used(), self.windows.masks_all())
            },
            |init| RotaryEmbedding::new(&init.at(BODY).at("rotary_emb"), &self.rope, self.head),
        )?;
        let sizes = [self.width, self.vocabulary];
        let lm_head = layers::lm_head(&at(last).at("lm_head"), &embed_tokens, self.tied, sizes, &self.options)?;
        Ok(Parts {
            front: Box::new(Embeddings(embed_tokens)),
            blocks,
            back: Box::new(Head { norm, lm_head }),
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
const BODY: &str = "model";

const SMALL: Fill = Fill::Normal { std: 0.02 };

struct Embeddings(Embedding);

impl Front for Embeddings {
    fn forward(&self, ids: &Tensor, attention_mask: Option<&Tensor>, guide: Option<&Guide>) -> Result<Begun> {
        let embeds = self.0.forward(ids)?;
        let context = match guide {
            Some(guide) => guide.context(&embeds, attention_mask)?,
            None => Context::default(),
        };
        Ok(Begun { hidden: embeds.clone(), context, variables: Variables(vec![embeds]) })
    }
}

struct Head {
    norm: Norm,
    lm_head: Linear,
}

impl Back for Head {
    fn norm(&self, hidden: Tensor) -> Result<Tensor> {
        self.norm.forward(&hidden)
    }

    fn scores(&self, hidden: &Tensor) -> Result<Tensor> {
        self.lm_head.forward(hidden)
    }
}

/// `LlamaRMSNorm`, written out: in f32, then back, then times the weight.
struct Norm {
    scope: ScopeId,
    weight: Parameter,
    eps: f64,
}

impl Norm {
    fn new(init: &Init, width: usize, eps: f64) -> Result<Self> {
        let weight = init.parameter("weight", &[width], Fill::Constant(1.0))?;
        Ok(Self { scope: init.scope(), weight, eps })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = ops::cast(x, DType::F32)?;
        let variance = {
            let squares = ops::pow(&hidden, 2.0)?;
            ops::mean_axes(&squares, &[x.rank() - 1], true)?
        };
        hidden = {
            let root = {
                let shifted = ops::add_scalar(&variance, self.eps)?;
                ops::rsqrt(&shifted)?
            };
            ops::mul(&hidden, &root)?
        };
        let narrow = ops::cast(&hidden, x.dtype())?;
        ops::mul(self.weight.tensor(), &narrow)
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
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    input_layernorm: Norm,
    post_attention_layernorm: Norm,
}

impl Layer {
    fn new(init: &Init, c: &Config, number: usize) -> Result<Self> {
        let (attn, mlp) = (init.at("self_attn"), init.at("mlp"));
        let linear = |init: Init, inputs, outputs, bias| Linear::with_fill(&init, inputs, outputs, bias, SMALL);
        let norm = |init: Init, width| Norm::new(&init, width, c.eps);
        let head_norm = |name| if c.head_norms { norm(attn.at(name), c.head).map(Some) } else { Ok(None) };
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
        let heads = |projection: &Linear, norm: &Option<Norm>, heads: usize| {
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
            ..Call::new(c.options.attention, c.head, c.attention_dropout)
        };
        let (mut y, weights) = call.attend(&q, &k, &v)?;
        y = ops::reshape(&y, &[batch, time, c.heads * c.head])?;
        Ok((self.o_proj.forward(&y)?, weights))
    }

    fn mlp(&self, hidden: &Tensor) -> Result<Tensor> {
        let product = {
            let gate = {
                let gate = self.gate_proj.forward(hidden)?;
                self.config.activation.apply(&gate)?
            };
            let up = self.up_proj.forward(hidden)?;
            ops::mul(&gate, &up)?
        };
        self.down_proj.forward(&product)
    }
}

/// Queries and keys turned by their positions' angles.
fn turned(q: Tensor, k: Tensor, context: &Context) -> Result<(Tensor, Tensor)> {
    let Some((cos, sin)) = &context.rotary else {
        return Err(memcore::Error::shape("rotary", "positions without angles"));
    };
    let (cos, sin) = (ops::unsqueeze(cos, 1)?, ops::unsqueeze(sin, 1)?);
    Ok((rotary::turned(&q, &cos, &sin)?, rotary::turned(&k, &cos, &sin)?))
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
        ops::add(&residual, &hidden)
    }
}
