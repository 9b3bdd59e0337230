//! `distilbert`: `DistilBertForMaskedLM`, a BERT without token types and with half the layers, and the other heads on `DistilBertModel`.

use lab_base::error;
use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module, Parameter, Sequential};
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::attention::{self, Call, Softmax, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common};
use super::family::{Family, Kind};
use super::head::Head;
use super::head_config::{self, HeadConfig, SMALL};
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::network::{EmbeddingOutput, InputEmbeddings, MaskedHead, NormedHead, OutputHead, Parts};
use super::options::Options;
use super::stage::Stage;

/// Settings of this family: dropouts of heads.
#[derive(Clone, Debug)]
pub(super) struct Own {
    answer_dropout: f64,
    class_dropout: f64,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

const KEYS: [&str; 6] = ["vocab_size", "max_position_embeddings", "dim", "n_layers", "n_heads", "hidden_dim"];

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, options: &Options) -> error::Result<Self> {
        for (key, own) in
            [("hidden_size", "dim"), ("num_attention_heads", "n_heads"), ("num_hidden_layers", "n_layers")]
        {
            if keys.get(key).is_some() {
                return Err(keys.error(key, format!("write {own}, as this model's files do")));
            }
        }
        let activation = Activation::read(keys, "activation", "gelu")?;
        let mut common = Common::read(keys, options, KEYS, [30_522, 512, 768, 6, 12, 3072], activation)?;
        common.dropout = keys.probability("dropout", 0.1)?;
        common.attention_dropout = keys.probability("attention_dropout", 0.1)?;
        common.eps = 1e-12;
        common.tied = keys.flag("tie_word_embeddings", true)?;
        let own = Own {
            answer_dropout: keys.probability("qa_dropout", 0.1)?,
            class_dropout: keys.probability("seq_classif_dropout", 0.2)?,
        };
        // An encoder has no cache.
        keys.get("use_cache");
        if keys.flag("sinusoidal_pos_embds", false)? {
            return Err(keys.error("sinusoidal_pos_embds", "positions that are not trained are not supported"));
        }
        if options.built_on_device {
            return Err(keys.error("model_type", "this model made on the device itself is not supported"));
        }
        keys::divides(keys, "n_heads", common.heads, common.width)?;
        keys::fits(keys, options.sequence, common.positions)?;
        Ok(Self { common, own })
    }

    fn output(&self, init: &Init, head: &HeadConfig, table: &Parameter) -> Result<Box<dyn OutputHead>> {
        if head.head.is_language_model() {
            return Ok(Box::new(masked_head(init, self, table)?));
        }
        let dropout = |p| Dropout::new(&init.at("dropout"), p);
        let last = |name: &str, outputs| head_config::linear(&init.at(name), self.width, outputs, true);
        let mut layers = Sequential::new();
        match head.head {
            Head::SequenceClassification | Head::MultipleChoice => {
                layers.append(head_config::pooler(init, "pre_classifier", self.width, ops::relu, None)?);
                layers.push(dropout(self.own.class_dropout)?);
                let classes = if head.head == Head::MultipleChoice { 1 } else { head.labels };
                layers.push(last("classifier", classes)?);
            }
            Head::TokenClassification => {
                layers.push(dropout(self.dropout)?);
                layers.push(last("classifier", head.labels)?);
            }
            Head::QuestionAnswering => {
                layers.push(dropout(self.own.answer_dropout)?);
                layers.push(last("qa_outputs", 2)?);
            }
            _ => {}
        }
        Ok(Box::new(NormedHead { norm: Sequential::new(), pooler: None, scores: layers }))
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Encoder { pools: false }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embeddings = Embeddings::new(&body(0).at("embeddings"), self)?;
        let layer = |i: usize| Layer::new(&body(1 + i).at("transformer").at("layer").at(i), self);
        let blocks = blocks::stack(self.layers, layer)?;
        let output = self.output(&at(1 + self.layers), head, &embeddings.word.weight)?;
        Ok(Parts {
            embeddings: Box::new(embeddings),
            blocks,
            output,
            stages: Parts::stages(at, self.layers, |_| Ok(Stage::encoder(&self.options)))?,
            body: BODY,
        })
    }
}

/// Name of everything except the output layer.
const BODY: &str = "distilbert";

struct Embeddings {
    scope: ScopeId,
    word: Embedding,
    position: Embedding,
    norm: LayerNorm,
    dropout: Dropout,
    /// `[1, positions]`, i64.
    position_ids: Array,
    marks: bool,
}

impl Embeddings {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let table = |name: &str, rows| Embedding::with_fill(&init.at(name), rows, c.width, SMALL);
        let (word, position) = (table("word_embeddings", c.vocabulary)?, table("position_embeddings", c.positions)?);
        let norm = LayerNorm::new(&init.at("LayerNorm"), c.width, c.eps)?;
        let dropout = Dropout::new(&init.at("dropout"), c.dropout)?;
        let position_ids = init.plain_buffer(&[1, c.positions], DType::I64)?;
        if init.device().computes() {
            position_ids.write(&(0..c.positions as i64).collect::<Vec<_>>())?;
        }
        Ok(Self { scope: init.scope(), word, position, norm, dropout, position_ids, marks: c.options.marks_embeds() })
    }

    fn embedded(&self, ids: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let words = layers::embedded(&self.word, ids, self.marks)?;
        let position_ids = Tensor::from_array(self.position_ids.narrow(1, 0, ids.dims()[1])?);
        let positions = self.position.forward(&position_ids)?;
        let mut sum = ops::add(&words, &positions)?;
        sum = self.norm.forward(&sum)?;
        sum = self.dropout.forward(&sum)?;
        drop((words, positions));
        Ok(sum)
    }
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, ids: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput> {
        let embedded = self.embedded(ids)?;
        let mask = stage.map_or(Ok(None), |stage| stage.mask(&embedded, said))?;
        Ok(EmbeddingOutput::held(embedded, BlockInputs { mask, ..BlockInputs::default() }))
    }
}

/// Makes the head from hidden states to the scores of tokens.
fn masked_head(init: &Init, c: &Config, table: &Parameter) -> Result<MaskedHead> {
    let dense = Linear::with_fill(&init.at("vocab_transform"), c.width, c.width, true, SMALL)?;
    let norm = LayerNorm::new(&init.at("vocab_layer_norm"), c.width, c.eps)?;
    let last = init.at("vocab_projector");
    let decoder = if c.tied { last.shared(table)? } else { last.parameter("weight", &[c.vocabulary, c.width], SMALL)? };
    let bias = last.parameter("bias", &[c.vocabulary], Fill::Constant(0.0))?;
    Ok(MaskedHead { scope: init.scope(), activation: c.activation, dense, norm, decoder, bias })
}

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
    q_lin: Linear,
    k_lin: Linear,
    v_lin: Linear,
    out_lin: Linear,
    sa_layer_norm: LayerNorm,
    lin1: Linear,
    lin2: Linear,
    dropout: Dropout,
    output_layer_norm: LayerNorm,
}

impl Layer {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let (attention, ffn) = (init.at("attention"), init.at("ffn"));
        let linear = |init: Init, inputs, outputs| Linear::with_fill(&init, inputs, outputs, true, SMALL);
        let square = |name: &str| linear(attention.at(name), c.width, c.width);
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attention, c.attention_dropout)?,
            q_lin: square("q_lin")?,
            k_lin: square("k_lin")?,
            v_lin: square("v_lin")?,
            out_lin: square("out_lin")?,
            sa_layer_norm: LayerNorm::new(&init.at("sa_layer_norm"), c.width, c.eps)?,
            lin1: linear(ffn.at("lin1"), c.width, c.inner)?,
            lin2: linear(ffn.at("lin2"), c.inner, c.width)?,
            dropout: Dropout::new(&ffn.at("dropout"), c.dropout)?,
            output_layer_norm: LayerNorm::new(&init.at("output_layer_norm"), c.width, c.eps)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let heads = |projection: &Linear| attention::heads(&projection.forward(hidden)?, c.heads);
        let (q, k, v) = (heads(&self.q_lin)?, heads(&self.k_lin)?, heads(&self.v_lin)?);
        let call = Call {
            mask: context.mask.as_ref(),
            softmax: Softmax::OwnType,
            ..Call::new(c.options.attention, width / c.heads, &self.weights_dropout)
        };
        call.project([q, k, v], &self.out_lin)
    }

    fn ff(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut x = self.lin1.forward(hidden)?;
        x = self.config.activation.apply(&x)?;
        x = self.lin2.forward(&x)?;
        self.dropout.forward(&x)
    }
}

impl blocks::Block for Layer {
    fn forward(&self, hidden: &Tensor, context: &BlockInputs) -> Result<Tensor> {
        let _scope = memcore::context::scope(self.scope);
        let (mut attended, _weights) = self.attention(hidden, context)?;
        attended = {
            let sum = ops::add(&attended, hidden)?;
            self.sa_layer_norm.forward(&sum)?
        };
        let ff = self.ff(&attended)?;
        let sum = ops::add(&ff, &attended)?;
        self.output_layer_norm.forward(&sum)
    }
}
