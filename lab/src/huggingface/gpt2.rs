//! `gpt2`: `GPT2LMHeadModel`.

use std::sync::Arc;

use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module};
use memcore::{Result, Tensor, context, ops};

use super::attention::{self, Attention, Call, Softmax, Weights};
use super::blocks::{self, Context};
use super::cache::DynamicCache;
use super::keys::Keys;
use super::layers::{self, Activation, Conv1d};
use super::network::{Inputs, Network, Output};
use super::{Options, Sizes, mask};
use crate::error;

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
    residual_dropout: f64,
    embedding_dropout: f64,
    attention_dropout: f64,
    eps: f64,
    scale_weights: bool,
    scale_by_layer: bool,
    tied: bool,
    use_cache: bool,
    options: Options,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let width = keys.size("n_embd", 768)?;
        let config = Self {
            vocabulary: keys.size("vocab_size", 50_257)?,
            positions: keys.size("n_positions", 1024)?,
            width,
            layers: keys.size("n_layer", 12)?,
            heads: keys.size("n_head", 12)?,
            inner: keys.optional_size("n_inner")?.unwrap_or(4 * width),
            activation: Activation::named("activation_function", keys.name("activation_function", "gelu_new")?)?,
            residual_dropout: keys.probability("resid_pdrop", 0.1)?,
            embedding_dropout: keys.probability("embd_pdrop", 0.1)?,
            attention_dropout: keys.probability("attn_pdrop", 0.1)?,
            eps: keys.number("layer_norm_epsilon", 1e-5)?,
            scale_weights: keys.flag("scale_attn_weights", true)?,
            scale_by_layer: keys.flag("scale_attn_by_inverse_layer_idx", false)?,
            tied: keys.flag("tie_word_embeddings", true)?,
            use_cache: keys.flag("use_cache", true)?,
            options: options.clone(),
        };
        if keys.flag("reorder_and_upcast_attn", false)? && options.attention == Attention::Eager {
            return Err(keys.error("reorder_and_upcast_attn", "attention scores in f32 are not represented"));
        }
        // Heads for other tasks, and where the library once kept what it now keeps elsewhere.
        for key in ["n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"] {
            keys.get(key);
        }
        keys.get("summary_use_proj");
        // The library takes these as other names of the same sizes.
        for (alias, name) in [
            ("hidden_size", "n_embd"),
            ("max_position_embeddings", "n_positions"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        ] {
            if keys.get(alias).is_some() {
                return Err(keys.error(alias, format!("write {name}, as the library does")));
            }
        }
        keys.check_no_window()?;
        super::divides(keys, "n_head", config.heads, config.width)?;
        super::fits(keys, options.sequence, config.positions)?;
        Ok(config)
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            classes: self.vocabulary,
            positions: self.positions,
        }
    }

    /// # Errors
    /// Those of the device.
    pub(super) fn build(&self, init: &Init) -> Result<Box<dyn Network>> {
        Ok(Box::new(Gpt2::new(init, self)?))
    }
}

struct Gpt2 {
    config: Config,
    scope: ScopeId,
    wte: Embedding,
    wpe: Embedding,
    drop: Dropout,
    blocks: Vec<Arc<Block>>,
    ln_f: LayerNorm,
    lm_head: Linear,
}

impl Gpt2 {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let small = Fill::Normal { std: 0.02 };
        let at = init.at("transformer");
        let wte = Embedding::with_fill(&at.at("wte"), c.vocabulary, c.width, small)?;
        let wpe = Embedding::with_fill(&at.at("wpe"), c.positions, c.width, small)?;
        let blocks = blocks::stack(c.layers, |i| Block::new(&at.at("h").at(i), c, i))?;
        let ln_f = LayerNorm::new(&at.at("ln_f"), c.width, c.eps)?;
        let lm_head = layers::lm_head(&init.at("lm_head"), &wte, c.tied, c.width, c.vocabulary)?;
        let drop = Dropout::new(&at.at("drop"), c.embedding_dropout)?;
        Ok(Self { config: c.clone(), scope: at.scope(), wte, wpe, drop, blocks, ln_f, lm_head })
    }

    /// The hidden states, and the cache.
    fn transformer(&self, inputs: &Inputs) -> Result<(Tensor, Option<Arc<DynamicCache>>)> {
        let _scope = context::scope(self.scope);
        let (c, ids) = (&self.config, &inputs.input);
        let cache = DynamicCache::wanted(c.use_cache, &c.options);
        let embeds = self.wte.forward(ids)?;
        let positions = mask::positions(ids.device(), ids.dims()[1])?;
        let positions = ops::unsqueeze(&Tensor::from_array(positions), 0)?;
        let position_embeds = self.wpe.forward(&positions)?;
        let mut hidden = ops::add(&embeds, &position_embeds)?;
        let request = mask::Request {
            attention: c.options.attention,
            embeds: &embeds,
            attention_mask: inputs.attention_mask.as_ref(),
            cached: cache.is_some(),
            positions: true,
        };
        let context = Context {
            mask: request.causal()?,
            cache: cache.clone(),
            window: None,
            rotary: None,
            _positions: Some(positions.clone()),
        };
        hidden = self.drop.forward(&hidden)?;
        hidden = blocks::through(&self.blocks, hidden, &context, c.options.checkpoint)?;
        hidden = self.ln_f.forward(&hidden)?;
        Ok((hidden, cache))
    }
}

impl Network for Gpt2 {
    fn forward(&self, inputs: &Inputs) -> Result<Output> {
        let (hidden, cache) = self.transformer(inputs)?;
        let logits = self.lm_head.forward(&hidden)?;
        Output::causal(logits, &inputs.labels, cache)
    }
}

struct Block {
    scope: ScopeId,
    config: Config,
    scale: f64,
    ln_1: LayerNorm,
    c_attn: Conv1d,
    attn_proj: Conv1d,
    resid_dropout: Dropout,
    ln_2: LayerNorm,
    c_fc: Conv1d,
    mlp_proj: Conv1d,
}

impl Block {
    fn new(init: &Init, c: &Config, index: usize) -> Result<Self> {
        let (attn, mlp) = (init.at("attn"), init.at("mlp"));
        let mut scale = if c.scale_weights { ((c.width / c.heads) as f64).powf(-0.5) } else { 1.0 };
        if c.scale_by_layer {
            scale /= (index + 1) as f64;
        }
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            scale,
            ln_1: LayerNorm::new(&init.at("ln_1"), c.width, c.eps)?,
            c_attn: Conv1d::new(&attn.at("c_attn"), 3 * c.width, c.width)?,
            attn_proj: Conv1d::new(&attn.at("c_proj"), c.width, c.width)?,
            resid_dropout: Dropout::new(&attn.at("resid_dropout"), c.residual_dropout)?,
            ln_2: LayerNorm::new(&init.at("ln_2"), c.width, c.eps)?,
            c_fc: Conv1d::new(&mlp.at("c_fc"), c.inner, c.width)?,
            mlp_proj: Conv1d::new(&mlp.at("c_proj"), c.width, c.inner)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &Context) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [batch, time, width] = attention::sizes(hidden)?;
        let heads = |part: &Tensor| attention::heads(part, c.heads);
        let (q, k, v) = {
            let qkv = self.c_attn.forward(hidden)?;
            let parts = ops::split(&qkv, width, 2)?;
            // The queries' view comes last, so its gradient is taken first.
            let (k, v) = (heads(&parts[1])?, heads(&parts[2])?);
            (heads(&parts[0])?, k, v)
        };
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            scale: self.scale,
            softmax: Softmax::ThenValues,
            contiguous: false,
            ..Call::new(c.options.attention, width / c.heads, c.attention_dropout)
        };
        let (mut y, weights) = call.attend(&q, &k, &v)?;
        y = ops::reshape(&y, &[batch, time, width])?;
        y = self.attn_proj.forward(&y)?;
        Ok((self.resid_dropout.forward(&y)?, weights))
    }

    fn mlp(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut hidden = self.c_fc.forward(hidden)?;
        hidden = self.config.activation.apply(&hidden)?;
        hidden = self.mlp_proj.forward(&hidden)?;
        self.resid_dropout.forward(&hidden)
    }
}

impl blocks::Block for Block {
    fn forward(&self, residual: &Tensor, context: &Context) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = self.ln_1.forward(residual)?;
        let (attended, _weights) = self.attention(&hidden, context)?;
        hidden = ops::add(&attended, residual)?;
        let residual = hidden.clone();
        hidden = self.ln_2.forward(&hidden)?;
        let fed = self.mlp(&hidden)?;
        ops::add(&residual, &fed)
    }
}
