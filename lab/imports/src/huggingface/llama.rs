//! `llama`, `mistral`, `qwen2`, `qwen3` and `gemma`: `LlamaForCausalLM`, its variants with another bias, window or norms, and their other heads.

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
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::network::{EmbeddingOutput, InputEmbeddings, NormedHead, Parts, Variables};
use super::options::Options;
use super::rms;
use super::rotary::{self, Angles, Rope, RopeKeys, RotaryEmbedding};
use super::stage::Stage;
use super::windows::{WindowKeys, Windows};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
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

impl Form {
    /// Returns the defaults of absent sizes, in the order of [`SIZES`].
    fn sizes(self) -> [usize; 6] {
        match self {
            Self::Gemma => [256_000, 8192, 3072, 28, 16, 24_576],
            Self::Llama => [32_000, 2048, 4096, 32, 32, 11_008],
            Self::Mistral => [32_000, 131_072, 4096, 32, 32, 14_336],
            Self::Qwen2 | Self::Qwen3 => [151_936, 32_768, 4096, 32, 32, 22_016],
        }
    }

    /// Returns the default number of heads of keys and values; `None` for as many as there are heads.
    fn key_heads(self) -> Option<usize> {
        match self {
            Self::Gemma => Some(16),
            Self::Llama => None,
            Self::Mistral => Some(8),
            Self::Qwen2 | Self::Qwen3 => Some(32),
        }
    }

    /// Returns the default elements of a head; `None` for the width divided by the heads.
    fn head(self) -> Option<usize> {
        match self {
            Self::Gemma => Some(256),
            Self::Qwen3 => Some(128),
            Self::Llama | Self::Mistral | Self::Qwen2 => None,
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

    /// Reads the activation of the feed-forward layers. Gemma's files name `gelu` and mean its approximation.
    fn activation(self, keys: &Keys<'_>) -> error::Result<Activation> {
        if self != Self::Gemma {
            return Activation::read(keys, "hidden_act", "silu");
        }
        // A key of older releases.
        keys.get("hidden_activation");
        let name = keys.name("hidden_act", "gelu_pytorch_tanh")?;
        Activation::named("hidden_act", if name == "gelu" { "gelu_pytorch_tanh" } else { name })
    }

    /// Liger's function for the feed-forward layers.
    fn gated_by_liger(self) -> &'static str {
        if self == Self::Gemma { "LigerGELUMulFunction" } else { "LigerSiLUMulFunction" }
    }

    fn norm(self) -> rms::Form {
        if self == Self::Gemma { rms::Form::OnePlusWeight } else { rms::Form::Weight }
    }
}

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    form: Form,
    key_heads: usize,
    /// Elements of a head.
    head: usize,
    /// Biases of the projections to queries, keys and values; of the output's; of the feed-forward layers.
    bias: [bool; 3],
    rope: Rope,
    windows: Windows,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, form: Form, options: &Options) -> error::Result<Self> {
        let mut common = Common::read(keys, options, SIZES, form.sizes(), form.activation(keys)?)?;
        let Common { positions, width, layers, heads, .. } = common;
        let key_heads = match keys.optional_size("num_key_value_heads")? {
            Some(n) => n,
            // Null means as many as there are query heads; an absent key means the family's default.
            None if keys.is_null("num_key_value_heads") => heads,
            None => form.key_heads().unwrap_or(heads),
        };
        let head = keys.optional_size("head_dim")?.or(form.head());
        let has_bias = !matches!(form, Form::Mistral | Form::Qwen2);
        let attention_bias = has_bias && keys.flag("attention_bias", false)?;
        let mlp_bias = form == Form::Llama && keys.flag("mlp_bias", false)?;
        if form == Form::Gemma && keys.flag("use_bidirectional_attention", false)? {
            return Err(keys.error("use_bidirectional_attention", "attention in both directions is not supported"));
        }
        common.attention_dropout = keys.probability("attention_dropout", 0.0)?;
        common.eps = keys.number("rms_norm_eps", 1e-6)?;
        common.tied = keys.flag("tie_word_embeddings", form == Form::Gemma)?;
        common.use_cache = keys.flag("use_cache", true)?;
        let rope = RopeKeys {
            theta: "rope_theta",
            share: "partial_rotary_factor",
            usual_share: 1.0,
            positions,
            original: None,
        };
        let own = Own {
            form,
            key_heads,
            head: head.unwrap_or(width / heads),
            bias: [attention_bias || form == Form::Qwen2, attention_bias, mlp_bias],
            rope: Rope::read(keys, rope, options)?,
            windows: form.windows(keys, layers)?,
        };
        keys::divides(keys, "num_key_value_heads", own.key_heads, heads)?;
        if head.is_none() {
            keys::divides(keys, "num_attention_heads", heads, width)?;
        }
        keys::divides(keys, "head_dim", 2, own.head)?;
        own.rope.check(keys, own.head)?;
        if own.rope.share != 1.0 {
            return Err(keys.error("partial_rotary_factor", "heads rotated in part are not supported for this model"));
        }
        keys::fits(keys, options.sequence, positions)?;
        own.windows.check(keys, options, positions)?;
        Ok(Self { common, own })
    }

    fn norm(&self, init: &Init, width: usize) -> Result<rms::Norm> {
        let form = if self.options.by_liger() { rms::Form::Liger } else { self.own.form.norm() };
        rms::Norm::new(init, width, self.eps, form)
    }

    /// Gemma's embeddings are multiplied by the root of the width.
    fn embeddings(&self, init: &Init) -> Result<Embeddings> {
        let table = Embedding::with_fill(init, self.vocabulary, self.width, SMALL)?;
        let marks = self.options.marks_embeds();
        if self.own.form != Form::Gemma {
            return Ok(Embeddings { table, scale: Scale::None, marks });
        }
        let root = (self.width as f64).sqrt();
        if self.options.rules().scales_by_number {
            return Ok(Embeddings { table, scale: Scale::Number(root), marks });
        }
        let _scope = context::scope(init.scope());
        // A buffer that is not saved.
        let scale = init.plain_buffer(&[], init.dtype())?;
        scale.fill_(root)?;
        Ok(Embeddings { table, scale: Scale::Tensor(Tensor::from_array(scale)), marks })
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Decoder { wide: true, shifted: true }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embed_tokens = self.embeddings(&body(0).at("embed_tokens"))?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self, i))?;
        let last = 1 + self.layers;
        let norm = self.norm(&body(last).at("norm"), self.width)?;
        let stages = Parts::stages(at, self.layers, |init| {
            let rotary = RotaryEmbedding::new(&init.at(BODY).at("rotary_emb"), &self.own.rope, self.own.head)?;
            Ok(Stage::decoder(&self.options, self.use_cache, true)
                .windowed(&self.own.windows)
                .copying_triangle(matches!(self.own.form, Form::Llama | Form::Gemma))
                .with_rotary(rotary))
        })?;
        let output = NormedHead::of_decoder(&at(last), self, head, "score", (norm, &embed_tokens.table))?;
        Ok(Parts { embeddings: Box::new(embed_tokens), blocks, output, stages, body: BODY })
    }
}

/// Name of everything except the output layer.
const BODY: &str = "model";

const SMALL: Fill = Fill::Normal { std: 0.02 };

pub(super) struct Embeddings {
    pub(super) table: Embedding,
    pub(super) scale: Scale,
    pub(super) marks: bool,
}

/// Factor of the embeddings.
pub(super) enum Scale {
    None,
    Number(f64),
    Tensor(Tensor),
}

impl Embeddings {
    /// The embeddings of tokens of a table that multiplies them itself, with what an adapter adds.
    fn scaled(&self, ids: &Tensor, factor: &Tensor) -> Result<Tensor> {
        let scale = ops::cast(factor, self.table.weight.tensor().dtype())?;
        let mut embeds = self.table.rows(ids)?;
        embeds = ops::mul(&embeds, &scale)?;
        self.table.adapted(layers::marked(embeds, self.marks), ids, Some(factor))
    }
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, ids: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput> {
        let embeds = match &self.scale {
            Scale::Tensor(scale) => self.scaled(ids, scale)?,
            _ => layers::embedded(&self.table, ids, self.marks)?,
        };
        let context = match stage {
            Some(stage) => stage.block_inputs(&embeds, said)?,
            None => BlockInputs::default(),
        };
        let hidden = match &self.scale {
            // The embeddings stay alive together with the product.
            Scale::Number(scale) => ops::mul_scalar(&embeds, *scale)?,
            _ => embeds.clone(),
        };
        Ok(EmbeddingOutput { hidden, context, variables: Variables(vec![embeds]) })
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
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
        let norms_heads = c.own.form == Form::Qwen3;
        let head_norm = |name| if norms_heads { norm(attn.at(name), c.own.head).map(Some) } else { Ok(None) };
        let [qkv, out, ff] = c.own.bias;
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attn, c.attention_dropout)?,
            window: c.own.windows.window_at(number),
            q_proj: linear(attn.at("q_proj"), c.width, c.heads * c.own.head, qkv)?,
            k_proj: linear(attn.at("k_proj"), c.width, c.own.key_heads * c.own.head, qkv)?,
            v_proj: linear(attn.at("v_proj"), c.width, c.own.key_heads * c.own.head, qkv)?,
            o_proj: linear(attn.at("o_proj"), c.heads * c.own.head, c.width, out)?,
            q_norm: head_norm("q_norm")?,
            k_norm: head_norm("k_norm")?,
            gate_proj: linear(mlp.at("gate_proj"), c.width, c.inner, ff)?,
            up_proj: linear(mlp.at("up_proj"), c.width, c.inner, ff)?,
            down_proj: linear(mlp.at("down_proj"), c.inner, c.width, ff)?,
            input_layernorm: norm(init.at("input_layernorm"), c.width)?,
            post_attention_layernorm: norm(init.at("post_attention_layernorm"), c.width)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [batch, time, _] = attention::sizes(hidden)?;
        let heads = |projection: &Linear, norm: &Option<rms::Norm>, heads: usize| {
            let projected = ops::view(&projection.forward(hidden)?, &[batch, time, heads, c.own.head])?;
            let normed = norm.as_ref().map(|norm| norm.forward(&projected)).transpose()?;
            ops::transpose(normed.as_ref().unwrap_or(&projected), 1, 2)
        };
        let q = heads(&self.q_proj, &self.q_norm, c.heads)?;
        let k = heads(&self.k_proj, &self.k_norm, c.own.key_heads)?;
        let v = heads(&self.v_proj, &None, c.own.key_heads)?;
        let (q, k) = rotated(q, k, context, c.options.by_liger())?;
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            repeats_keys: c.options.rules().repeats_keys,
            ..Call::new(c.options.attention, c.own.head, &self.weights_dropout)
        };
        call.project([q, k, v], &self.o_proj)
    }

    fn mlp(&self, hidden: &Tensor) -> Result<Tensor> {
        if self.config.options.by_liger() {
            let product = {
                let (gate, up) = (self.gate_proj.forward(hidden)?, self.up_proj.forward(hidden)?);
                ops::liger_gated(&gate, &up, self.config.own.form.gated_by_liger())?
            };
            return self.down_proj.forward(&product);
        }
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

/// Rotates queries and keys by their positions' angles.
fn rotated(q: Tensor, k: Tensor, context: &BlockInputs, by_liger: bool) -> Result<(Tensor, Tensor)> {
    let Some(Angles { sin, cos }) = &context.rotary else {
        return Err(memcore::Error::shape("rotary", "positions without angles"));
    };
    if by_liger {
        return ops::liger_rope([&q, &k], [cos, sin]).map(|[q, k]| (q, k));
    }
    let (cos, sin) = (ops::unsqueeze(cos, 1)?, ops::unsqueeze(sin, 1)?);
    let both = (rotary::rotated(&q, &cos, &sin)?, rotary::rotated(&k, &cos, &sin)?);
    drop((q, k));
    Ok(both)
}

impl blocks::Block for Layer {
    fn window(&self) -> Option<usize> {
        self.window
    }

    fn forward(&self, input: &Tensor, context: &BlockInputs) -> Result<Tensor> {
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
