//! `gpt2`: `GPT2LMHeadModel` and the other heads on `GPT2Model`.

use lab_base::error;
use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Module};
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::attention::{self, Call, Softmax, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common};
use super::family::{Family, Kind};
use super::head_config::HeadConfig;
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::{self, Activation, Conv1d};
use super::mask;
use super::network::{EmbeddingOutput, InputEmbeddings, NormedHead, Parts, Variables};
use super::options::{Attention, Options};
use super::stage::{self, Stage};

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    embedding_dropout: f64,
    scale_weights: bool,
    scale_by_layer: bool,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

const KEYS: [&str; 6] = ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"];

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let width = keys.size("n_embd", 768)?;
        let activation = Activation::read(keys, "activation_function", "gelu_new")?;
        let mut common = Common::read(keys, options, KEYS, [50_257, 1024, width, 12, 12, 4 * width], activation)?;
        common.dropout = keys.probability("resid_pdrop", 0.1)?;
        common.attention_dropout = keys.probability("attn_pdrop", 0.1)?;
        common.eps = keys.number("layer_norm_epsilon", 1e-5)?;
        common.tied = keys.flag("tie_word_embeddings", true)?;
        common.use_cache = keys.flag("use_cache", true)?;
        let own = Own {
            embedding_dropout: keys.probability("embd_pdrop", 0.1)?,
            scale_weights: keys.flag("scale_attn_weights", true)?,
            scale_by_layer: keys.flag("scale_attn_by_inverse_layer_idx", false)?,
        };
        if keys.flag("reorder_and_upcast_attn", false)? && options.attention == Attention::Eager {
            return Err(keys.error("reorder_and_upcast_attn", "attention scores in f32 are not supported"));
        }
        // Heads for other tasks, and earlier places of keys that the library has moved.
        for key in ["n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"] {
            keys.get(key);
        }
        keys.get("summary_use_proj");
        // The library accepts these as other names of the same sizes.
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
        if options.rules().triangular_mask && options.built_on_device {
            let problem = "made on the device, GPT-2 of transformers before 4.53 is not supported";
            return Err(error::Error::usage("built-on-device", problem));
        }
        keys.check_no_window()?;
        keys::divides(keys, "n_head", common.heads, common.width)?;
        keys::fits(keys, options.sequence, common.positions)?;
        Ok(Self { common, own })
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Decoder { wide: false, shifted: false }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let small = Fill::Normal { std: 0.02 };
        let body = |piece: usize| at(piece).at(BODY);
        let wte = Embedding::with_fill(&body(0).at("wte"), self.vocabulary, self.width, small)?;
        let wpe = Embedding::with_fill(&body(0).at("wpe"), self.positions, self.width, small)?;
        let blocks = blocks::stack(self.layers, |i| Block::new(&body(1 + i).at("h").at(i), self, i))?;
        let last = 1 + self.layers;
        let ln_f = LayerNorm::new(&body(last).at("ln_f"), self.width, self.eps)?;
        let output = NormedHead::of_decoder(&at(last), self, head, "classifier", (ln_f, &wte))?;
        let drop = Dropout::new(&body(0).at("drop"), self.own.embedding_dropout)?;
        Ok(Parts {
            embeddings: Box::new(Embeddings {
                wte,
                wpe,
                drop,
                looks_for_padding: head.padding.is_some(),
                plain_positions: self.options.rules().plain_positions,
                marks: self.options.marks_embeds(),
            }),
            blocks,
            output,
            stages: Parts::stages(at, self.layers, |_| {
                Ok(Stage::decoder(&self.options, self.use_cache, true).with_triangles_in_blocks())
            })?,
            body: BODY,
        })
    }
}

/// Name of everything except the output layer.
const BODY: &str = "transformer";

struct Embeddings {
    wte: Embedding,
    wpe: Embedding,
    drop: Dropout,
    /// True if the configuration names the padding token.
    looks_for_padding: bool,
    /// True if the positions are made first, and are a range alone.
    plain_positions: bool,
    marks: bool,
}

/// `pad_token_id in input_ids[:, [-1, 0]]`: without a mask the library checks whether an example begins or ends with padding, and only warns.
fn look_for_padding(ids: &Tensor) -> Result<()> {
    let device = ids.device();
    let array = |dims: &[usize], dtype| Array::empty(device, dims, dtype);
    let ends = {
        let _places = array(&[2], DType::I64)?;
        array(&[ids.dims()[0], 2], DType::I64)?
    };
    let equal = array(ends.dims(), DType::Bool)?;
    let any = array(&[], DType::Bool)?;
    drop((equal, any, ends));
    Ok(())
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, ids: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput> {
        if self.looks_for_padding && said.attention_mask.is_none() {
            look_for_padding(ids)?;
        }
        let (embeds, positions) = if self.plain_positions {
            let positions = stage::plain_positions(ids)?;
            (layers::embedded(&self.wte, ids, self.marks)?, positions)
        } else {
            let embeds = layers::embedded(&self.wte, ids, self.marks)?;
            (embeds, said.positions.cloned().map_or_else(|| stage::positions(ids), Ok)?)
        };
        let position_embeds = self.wpe.forward(&positions)?;
        let mut hidden = ops::add(&embeds, &position_embeds)?;
        let context = match stage {
            Some(stage) => BlockInputs {
                mask: stage.mask(&embeds, said)?,
                cache: stage.cache(),
                _positions: Some(positions.clone()),
                ..BlockInputs::default()
            },
            None => BlockInputs::default(),
        };
        hidden = self.drop.forward(&hidden)?;
        Ok(EmbeddingOutput { hidden, context, variables: Variables(vec![embeds, positions, position_embeds]) })
    }
}

/// Buffers of a block's attention in releases before 4.53.
struct Triangle {
    /// True where a key is seen, bool `[1, 1, positions, positions]`.
    seen: Array,
    /// A number that nothing reads, in the network's type.
    _masked: Array,
}

impl Triangle {
    fn new(init: &Init, positions: usize) -> Result<Self> {
        let _scope = context::scope(init.scope());
        let seen = init.plain_buffer(&[1, 1, positions, positions], DType::Bool)?;
        if init.device().computes() {
            let seen_at = |at: usize| u8::from(at % positions <= at / positions);
            seen.write(&(0..positions * positions).map(seen_at).collect::<Vec<_>>())?;
        }
        Ok(Self { seen, _masked: init.plain_buffer(&[], init.dtype())? })
    }
}

struct Block {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
    /// Its number, from 1.
    number: usize,
    scale: f64,
    ln_1: LayerNorm,
    c_attn: Conv1d,
    attn_proj: Conv1d,
    /// Of releases before 4.53.
    triangle: Option<Triangle>,
    resid_dropout: Dropout,
    ln_2: LayerNorm,
    c_fc: Conv1d,
    mlp_proj: Conv1d,
}

impl Block {
    fn new(init: &Init, c: &Config, index: usize) -> Result<Self> {
        let (attn, mlp) = (init.at("attn"), init.at("mlp"));
        let mut scale = if c.own.scale_weights { ((c.width / c.heads) as f64).powf(-0.5) } else { 1.0 };
        if c.own.scale_by_layer {
            scale /= (index + 1) as f64;
        }
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attn, c.attention_dropout)?,
            number: index + 1,
            scale,
            ln_1: LayerNorm::new(&init.at("ln_1"), c.width, c.eps)?,
            c_attn: Conv1d::new(&attn.at("c_attn"), 3 * c.width, c.width)?,
            attn_proj: Conv1d::new(&attn.at("c_proj"), c.width, c.width)?,
            triangle: c.options.rules().triangular_mask.then(|| Triangle::new(&attn, c.positions)).transpose()?,
            resid_dropout: Dropout::new(&attn.at("resid_dropout"), c.dropout)?,
            ln_2: LayerNorm::new(&init.at("ln_2"), c.width, c.eps)?,
            c_fc: Conv1d::new(&mlp.at("c_fc"), c.inner, c.width)?,
            mlp_proj: Conv1d::new(&mlp.at("c_proj"), c.width, c.inner)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let heads = |part: &Tensor| attention::heads(part, c.heads);
        let (q, k, v) = {
            let qkv = self.c_attn.forward(hidden)?;
            let parts = ops::split(&qkv, width, 2)?;
            // The queries' view comes last, so its gradient is taken first.
            let (k, v) = (heads(&parts[1])?, heads(&parts[2])?);
            (heads(&parts[0])?, k, v)
        };
        let (k, v) = context.cached(k, v)?;
        if let Some(triangle) = &self.triangle
            && c.options.attention == Attention::Eager
        {
            let (mut y, weights) = self.masked_by(triangle, &q, &k, &v)?;
            y = attention::join(&y)?;
            y = self.attn_proj.forward(&y)?;
            let dropped = self.resid_dropout.forward(&y)?;
            // The library's function for attention ends here, and its caller is not given the weights.
            drop((y, q, k, v, weights));
            return Ok((dropped, None));
        }
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            scale: self.scale,
            softmax: Softmax::ThenValues,
            contiguous: false,
            repeats_keys: c.options.rules().repeats_keys,
            ..Call::new(c.options.attention, width / c.heads, &self.weights_dropout)
        };
        let (mut y, weights) = call.attend(&q, &k, &v)?;
        y = attention::join(&y)?;
        y = self.attn_proj.forward(&y)?;
        let dropped = self.resid_dropout.forward(&y)?;
        drop((y, q, k, v));
        Ok((dropped, weights))
    }

    /// `eager_attention_forward` of releases before 4.53: scores are divided by a number on the device, and later keys are hidden by the buffer.
    fn masked_by(&self, triangle: &Triangle, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let c = &self.config;
        let [time, head] = [q.dims()[2], q.dims()[3]];
        let number = |like: &Tensor, value: f64| {
            Ok::<_, memcore::Error>(Tensor::from_array(Array::full(like.device(), &[], like.dtype(), value)?))
        };
        let mut weights = {
            let k_t = ops::transpose(k, 2, 3)?;
            ops::matmul(q, &k_t)?
        };
        if c.own.scale_weights {
            weights = ops::div(&weights, &number(&weights, (head as f64).sqrt())?)?;
        }
        if c.own.scale_by_layer {
            weights = ops::div_scalar(&weights, self.number as f64)?;
        }
        let seen = Tensor::from_array(triangle.seen.narrow(2, 0, time)?.narrow(3, 0, time)?);
        let least = number(&weights, mask::least(weights.dtype()))?;
        weights = ops::where_(&seen, &weights, &least)?;
        weights = ops::softmax(&weights, 3)?;
        weights = ops::cast(&weights, v.dtype())?;
        weights = ops::dropout(&weights, self.weights_dropout.probability(), true)?;
        let y = ops::transpose(&ops::matmul(&weights, v)?, 1, 2)?;
        drop(least);
        Ok((y, weights))
    }

    fn mlp(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut hidden = self.c_fc.forward(hidden)?;
        hidden = self.config.activation.apply(&hidden)?;
        hidden = self.mlp_proj.forward(&hidden)?;
        self.resid_dropout.forward(&hidden)
    }
}

impl blocks::Block for Block {
    fn forward(&self, residual: &Tensor, context: &BlockInputs) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = self.ln_1.forward(residual)?;
        let (attended, weights) = self.attention(&hidden, context)?;
        hidden = ops::add(&attended, residual)?;
        let residual = hidden.clone();
        hidden = self.ln_2.forward(&hidden)?;
        let ff = self.mlp(&hidden)?;
        let y = ops::add(&residual, &ff)?;
        // In the order of the library's variables.
        drop((hidden, residual, attended, weights, ff));
        Ok(y)
    }
}
