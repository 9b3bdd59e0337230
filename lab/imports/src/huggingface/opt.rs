//! `opt`: `OPTForCausalLM` and the other heads on `OPTModel`.

use lab_base::error;
use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module, Sequential};
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::attention::{self, Call, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common, SIZES};
use super::family::{Family, Kind};
use super::head_config::HeadConfig;
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::mask;
use super::network::{EmbeddingOutput, InputEmbeddings, OutputHead, Parts, Scores, Variables};
use super::options::Options;
use super::stage::Stage;

/// Rows of the position table that no position uses.
const OFFSET: usize = 2;

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    embedding_width: usize,
    norm_first: bool,
    final_norm: bool,
    bias: bool,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        let activation = Activation::read(keys, "activation_function", "relu")?;
        let [vocabulary, positions, width, layers, heads, _] = SIZES;
        let names = [vocabulary, positions, width, layers, heads, "ffn_dim"];
        let mut common = Common::read(keys, options, names, [50_272, 2048, 768, 12, 12, 3072], activation)?;
        common.dropout = keys.probability("dropout", 0.1)?;
        common.attention_dropout = keys.probability("attention_dropout", 0.0)?;
        common.tied = keys.flag("tie_word_embeddings", true)?;
        common.use_cache = keys.flag("use_cache", true)?;
        let norm_first = keys.flag("do_layer_norm_before", true)?;
        let own = Own {
            embedding_width: keys.optional_size("word_embed_proj_dim")?.unwrap_or(common.width),
            norm_first,
            final_norm: !keys.flag("_remove_final_layer_norm", false)? && norm_first,
            bias: keys.flag("enable_bias", true)?,
        };
        if keys.number("layerdrop", 0.0)? != 0.0 {
            return Err(keys.error("layerdrop", "layers left out at random are not supported"));
        }
        if !keys.flag("layer_norm_elementwise_affine", true)? {
            return Err(keys.error("layer_norm_elementwise_affine", "norms without parameters are not supported"));
        }
        keys.check_no_window()?;
        keys::divides(keys, "num_attention_heads", common.heads, common.width)?;
        keys::fits(keys, options.sequence, common.positions)?;
        Ok(Self { common, own })
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Decoder { wide: false, shifted: true }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let small = Fill::Normal { std: 0.02 };
        let body = |piece: usize| at(piece).at(BODY);
        let (last, width) = (1 + self.layers, self.width);
        let (table, positions) = (self.own.embedding_width, self.positions + OFFSET);
        let embed_tokens = Embedding::with_fill(&body(0).at("embed_tokens"), self.vocabulary, table, small)?;
        // PEFT's adapters of it do not run: its arguments are not places.
        let embed_positions = Embedding::without_adapter(&body(0).at("embed_positions"), positions, width, small)?;
        let projected = table != width;
        let project =
            |init: Init, inputs, outputs| projected.then(|| linear(&init, inputs, outputs, false)).transpose();
        let project_out = project(body(last).at("project_out"), width, table)?;
        let project_in = project(body(0).at("project_in"), table, width)?;
        let norm = || LayerNorm::new(&body(last).at("final_layer_norm"), width, self.eps);
        let final_layer_norm = self.own.final_norm.then(norm).transpose()?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self))?;
        let sizes = [table, self.vocabulary];
        let lm_head = |init: &Init| layers::lm_head(init, &embed_tokens, self.tied, sizes, &self.options);
        let scores = head.on_decoder(&at(last), table, "classifier", lm_head)?;
        Ok(Parts {
            embeddings: Box::new(Embeddings {
                embed_tokens,
                embed_positions,
                project_in,
                marks: self.options.marks_embeds(),
            }),
            blocks,
            output: Box::new(Head { project_out, final_layer_norm, scores }),
            stages: Parts::stages(at, self.layers, |_| Ok(Stage::decoder(&self.options, self.use_cache, false)))?,
            body: BODY,
        })
    }
}

/// Name of everything except the output layer.
const BODY: &str = "model.decoder";

fn linear(init: &Init, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
    Linear::with_fill(init, inputs, outputs, bias, Fill::Normal { std: 0.02 })
}

struct Embeddings {
    embed_tokens: Embedding,
    embed_positions: Embedding,
    project_in: Option<Linear>,
    marks: bool,
}

impl Embeddings {
    /// Computes positions from the mask, `(cumsum(mask)·mask − 1).long()`, unless they are passed, and returns them with the mask: ones in f32 if none is
    /// passed.
    fn positions(ids: &Tensor, said: Said<'_>) -> Result<(Tensor, Tensor)> {
        let (device, dims) = (ids.device(), [ids.dims()[0], ids.dims()[1]]);
        let mask = match said.attention_mask {
            Some(mask) => mask.clone(),
            None => Tensor::from_array(Array::ones(device, &dims, DType::F32)?),
        };
        if let Some(positions) = said.positions {
            return Ok((mask, positions.clone()));
        }
        let like = || Array::empty(device, &dims, mask.dtype());
        let sums = like()?;
        mask::scan(&sums, dims)?;
        let shifted = {
            let _product = like()?;
            like()?
        };
        let positions = if shifted.dtype() == DType::I64 { shifted } else { Array::empty(device, &dims, DType::I64)? };
        Ok((mask, Tensor::from_array(positions)))
    }

    /// `embed_positions(positions + 2)`
    fn embedded_positions(&self, positions: &Tensor, given: Option<&Tensor>) -> Result<Tensor> {
        let [batch, time] = [positions.dims()[0], positions.dims()[1]];
        let rows = Array::empty(positions.device(), &[batch, time], DType::I64)?;
        if rows.device().computes() {
            let values = match given {
                Some(given) => given.to_vec::<i64>()?,
                None => (0..batch * time).map(|i| (i % time) as i64).collect(),
            };
            rows.write(&values.into_iter().map(|position| position + OFFSET as i64).collect::<Vec<_>>())?;
        }
        self.embed_positions.forward(&Tensor::from_array(rows))
    }
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, ids: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput> {
        let mut embeds = layers::embedded(&self.embed_tokens, ids, self.marks)?;
        let cache = stage.and_then(Stage::cache);
        let (mask, positions) = Self::positions(ids, said)?;
        let own = |stage: &Stage| stage.options.rules().masks_by_positions.then_some(&mask);
        let masked = |stage: &Stage| Said { attention_mask: said.attention_mask.or(own(stage)), positions: None };
        let context = match stage {
            Some(stage) => BlockInputs {
                mask: stage.mask(&embeds, masked(stage))?,
                cache,
                _positions: Some(positions.clone()),
                ..BlockInputs::default()
            },
            None => BlockInputs::default(),
        };
        let position_embeds = self.embedded_positions(&positions, said.positions)?;
        if let Some(project_in) = &self.project_in {
            embeds = project_in.forward(&embeds)?;
        }
        let hidden = ops::add(&embeds, &position_embeds)?;
        Ok(EmbeddingOutput { hidden, context, variables: Variables(vec![embeds, positions, mask, position_embeds]) })
    }
}

struct Head {
    project_out: Option<Linear>,
    final_layer_norm: Option<LayerNorm>,
    scores: Sequential,
}

impl OutputHead for Head {
    fn norm(&self, mut hidden: Tensor) -> Result<Tensor> {
        if let Some(norm) = &self.final_layer_norm {
            hidden = norm.forward(&hidden)?;
        }
        if let Some(project_out) = &self.project_out {
            hidden = project_out.forward(&hidden)?;
        }
        Ok(hidden)
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores> {
        let Scores { scores, input } = Scores::run(&self.scores, hidden)?;
        Ok(Scores { scores: ops::contiguous(&scores)?, input })
    }

    fn layers(&self) -> Option<&Sequential> {
        Some(&self.scores)
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    self_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
    dropout: Dropout,
}

impl Layer {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let attn = init.at("self_attn");
        let square = |name: &str| linear(&attn.at(name), c.width, c.width, c.own.bias);
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attn, c.attention_dropout)?,
            k_proj: square("k_proj")?,
            v_proj: square("v_proj")?,
            q_proj: square("q_proj")?,
            out_proj: square("out_proj")?,
            self_attn_layer_norm: LayerNorm::new(&init.at("self_attn_layer_norm"), c.width, c.eps)?,
            fc1: linear(&init.at("fc1"), c.width, c.inner, c.own.bias)?,
            fc2: linear(&init.at("fc2"), c.inner, c.width, c.own.bias)?,
            final_layer_norm: LayerNorm::new(&init.at("final_layer_norm"), c.width, c.eps)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let head = width / c.heads;
        let q = {
            let q = self.q_proj.forward(hidden)?;
            let scaled = ops::mul_scalar(&q, (head as f64).powf(-0.5))?;
            drop(q);
            attention::heads(&scaled, c.heads)?
        };
        // Both projections exist before either is split, and only their views afterwards.
        let (k, v) = {
            let (k, v) = (self.k_proj.forward(hidden)?, self.v_proj.forward(hidden)?);
            (attention::heads(&k, c.heads)?, attention::heads(&v, c.heads)?)
        };
        let (k, v) = context.cached(k, v)?;
        let call = Call {
            mask: context.mask.as_ref(),
            causal: true,
            scale: 1.0,
            ..Call::new(c.options.attention, head, &self.weights_dropout)
        };
        call.project([q, k, v], &self.out_proj)
    }
}

impl blocks::Block for Layer {
    fn forward(&self, input: &Tensor, context: &BlockInputs) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = input.clone();
        let mut residual = hidden.clone();
        if self.config.own.norm_first {
            hidden = self.self_attn_layer_norm.forward(&hidden)?;
        }
        let (attended, _weights) = self.attention(&hidden, context)?;
        hidden = attended;
        hidden = self.dropout.forward(&hidden)?;
        hidden = ops::add(&residual, &hidden)?;
        if !self.config.own.norm_first {
            hidden = self.self_attn_layer_norm.forward(&hidden)?;
        }
        let dims = hidden.dims().to_vec();
        let width = self.config.width;
        hidden = ops::reshape(&hidden, &[hidden.numel() / width, width])?;
        residual = hidden.clone();
        if self.config.own.norm_first {
            hidden = self.final_layer_norm.forward(&hidden)?;
        }
        hidden = self.fc1.forward(&hidden)?;
        hidden = self.config.activation.apply(&hidden)?;
        hidden = self.fc2.forward(&hidden)?;
        hidden = self.dropout.forward(&hidden)?;
        hidden = {
            let sum = ops::add(&residual, &hidden)?;
            ops::view(&sum, &dims)?
        };
        if !self.config.own.norm_first {
            hidden = self.final_layer_norm.forward(&hidden)?;
        }
        Ok(hidden)
    }
}
