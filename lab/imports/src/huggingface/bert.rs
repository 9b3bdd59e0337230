//! `bert` and `roberta`: `BertForMaskedLM`, `RobertaForMaskedLM`, and the other heads on `BertModel` and `RobertaModel`; `camembert` and `xlm-roberta`,
//! which are RoBERTa under other names.

use lab_base::error;
use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module, Parameter, Sequential};
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::attention::{self, Call, Softmax, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common, SIZES};
use super::family::{Family, Kind};
use super::head::Head;
use super::head_config::{self, HeadConfig, SMALL};
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::{self, Activation};
use super::mask;
use super::network::{EmbeddingOutput, InputEmbeddings, MaskedHead, NormedHead, OutputHead, Parts};
use super::options::Options;
use super::stage::Stage;

/// BERT or RoBERTa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `bert`
    Bert,
    /// `roberta`, `camembert`, `xlm-roberta`: counts its positions from the tokens, starting after the padding token.
    Roberta {
        /// The padding token.
        padding: usize,
    },
}

impl Form {
    /// Returns the name of everything except the output layer.
    fn body(self) -> &'static str {
        if self == Self::Bert { "bert" } else { "roberta" }
    }

    /// Returns the number of rows of the position table that no token uses.
    fn unused_positions(self) -> usize {
        match self {
            Self::Bert => 0,
            Self::Roberta { padding } => padding + 1,
        }
    }
}

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    form: Form,
    /// Number of token types.
    types: usize,
}

/// Configuration of this family.
pub(super) type Config = config::Config<Own>;

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, model_type: &str, head: &HeadConfig, options: &Options) -> error::Result<Self> {
        let roberta = model_type != "bert";
        let form = if roberta { Form::Roberta { padding: keys.count("pad_token_id", 1)? } } else { Form::Bert };
        let sizes = [if model_type == "roberta" { 50_265 } else { 30_522 }, 512, 768, 12, 12, 3072];
        let activation = Activation::read(keys, "hidden_act", "gelu")?;
        let mut common = Common::read(keys, options, SIZES, sizes, activation)?;
        common.dropout = keys.probability("hidden_dropout_prob", 0.1)?;
        common.attention_dropout = keys.probability("attention_probs_dropout_prob", 0.1)?;
        common.eps = keys.number("layer_norm_eps", 1e-12)?;
        common.tied = keys.flag("tie_word_embeddings", true)?;
        // An encoder has no cache.
        keys.get("use_cache");
        if keys.flag("is_decoder", false)? {
            return Err(keys.error("is_decoder", "an encoder as a decoder is not supported"));
        }
        if !common.tied && head.head.is_language_model() {
            return Err(keys.error("tie_word_embeddings", "an output layer of its own is not supported"));
        }
        keys::divides(keys, "num_attention_heads", common.heads, common.width)?;
        if common.positions <= form.unused_positions() {
            return Err(keys.error("max_position_embeddings", "leaves no position after that of padding"));
        }
        common.positions -= form.unused_positions();
        keys::fits(keys, options.sequence, common.positions)?;
        Ok(Self { common, own: Own { form, types: keys.size("type_vocab_size", 2)? } })
    }

    fn output(&self, init: &Init, head: &HeadConfig, table: &Parameter) -> Result<Box<dyn OutputHead>> {
        if head.head.is_language_model() {
            return Ok(Box::new(masked_head(init, self, table)?));
        }
        let (width, bert) = (self.width, self.own.form == Form::Bert);
        let classifier_dropout = head.dropout(self.dropout);
        let dropout = |p| Dropout::new(&init.at("dropout"), p);
        let pooler =
            || head_config::pooler(&init.at(self.own.form.body()).at("pooler"), "dense", width, ops::tanh, None);
        let last = |name: &str, outputs| head_config::linear(&init.at(name), width, outputs, true);
        let mut layers = Sequential::new();
        let pools = match head.head {
            Head::SequenceClassification => bert,
            Head::NextSentence | Head::MultipleChoice | Head::BaseModel => true,
            _ => false,
        };
        // The body's own, before the classifier's additions.
        let pooler = pools.then(pooler).transpose()?;
        match head.head {
            Head::SequenceClassification if bert => {
                layers.push(dropout(classifier_dropout)?);
                layers.push(last("classifier", head.labels)?);
            }
            Head::SequenceClassification => {
                let classifier = init.at("classifier");
                // A module of its own: the inputs of its layers are freed with it.
                let mut inside = head_config::pooler(&classifier, "dense", width, ops::tanh, Some(classifier_dropout))?;
                inside.push(Dropout::new(&classifier.at("dropout"), classifier_dropout)?);
                inside.push(head_config::linear(&classifier.at("out_proj"), width, head.labels, true)?);
                layers.push(inside);
            }
            Head::NextSentence => {
                layers.push(head_config::linear(&init.at("cls").at("seq_relationship"), width, 2, true)?);
            }
            Head::MultipleChoice => {
                layers.push(dropout(if bert { classifier_dropout } else { self.dropout })?);
                layers.push(last("classifier", 1)?);
            }
            Head::TokenClassification => {
                layers.push(dropout(classifier_dropout)?);
                layers.push(last("classifier", head.labels)?);
            }
            Head::QuestionAnswering => layers.push(last("qa_outputs", 2)?),
            _ => {}
        }
        Ok(Box::new(NormedHead { norm: Sequential::new(), pooler, scores: layers }))
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Encoder { pools: true }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(self.own.form.body());
        let embeddings = Embeddings::new(&body(0).at("embeddings"), self)?;
        let layer = |i: usize| Layer::new(&body(1 + i).at("encoder").at("layer").at(i), self);
        let blocks = blocks::stack(self.layers, layer)?;
        let output = self.output(&at(1 + self.layers), head, &embeddings.word.weight)?;
        Ok(Parts {
            embeddings: Box::new(embeddings),
            blocks,
            output,
            stages: Parts::stages(at, self.layers, |_| Ok(Stage::encoder(&self.options)))?,
            body: self.own.form.body(),
        })
    }

    fn check(&self, batch: usize) -> error::Result<()> {
        if self.options.sequence == Some(1) && batch > 1 {
            let problem = "one token per example is supported for batches of one only";
            return Err(error::Error::usage("sequence", problem));
        }
        Ok(())
    }

    /// Returns the parameters in the optimizer's order: the output's bias belongs to the module that holds the rest of the head, so it comes first
    /// there.
    fn optimizer_order(&self, head: Head, mut parameters: Vec<Parameter>) -> Vec<Parameter> {
        if head == Head::MaskedLm
            && let Some(bias) = parameters.pop()
        {
            let place = parameters.len().saturating_sub(BEFORE_BIAS);
            parameters.insert(place, bias);
        }
        parameters
    }
}

struct Embeddings {
    scope: ScopeId,
    form: Form,
    word: Embedding,
    position: Embedding,
    token_type: Embedding,
    norm: LayerNorm,
    dropout: Dropout,
    /// `[1, positions]` each, i64.
    position_ids: Array,
    token_type_ids: Array,
    marks: bool,
}

impl Embeddings {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let table = |name: &str, rows| Embedding::with_fill(&init.at(name), rows, c.width, SMALL);
        let word = table("word_embeddings", c.vocabulary)?;
        let rows = c.positions + c.own.form.unused_positions();
        let place = || table("position_embeddings", rows);
        let before = if c.own.form == Form::Bert { Some(place()?) } else { None };
        let token_type = table("token_type_embeddings", c.own.types)?;
        let norm = LayerNorm::new(&init.at("LayerNorm"), c.width, c.eps)?;
        let position = before.map_or_else(place, Ok)?;
        let dropout = Dropout::new(&init.at("dropout"), c.dropout)?;
        let buffer = |values: Vec<i64>| {
            let array = init.plain_buffer(&[1, rows], DType::I64)?;
            if init.device().computes() {
                array.write(&values)?;
            }
            Ok::<_, memcore::Error>(array)
        };
        let position_ids = buffer((0..rows as i64).collect())?;
        let token_type_ids = buffer(vec![0; rows])?;
        let (scope, form, marks) = (init.scope(), c.own.form, c.options.marks_embeds());
        Ok(Self { scope, form, word, position, token_type, norm, dropout, position_ids, token_type_ids, marks })
    }

    fn embedded(&self, ids: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let [batch, time] = [ids.dims()[0], ids.dims()[1]];
        let position_ids = match self.form {
            Form::Bert => self.position_ids.narrow(1, 0, time)?,
            Form::Roberta { padding } => counted(ids, padding)?,
        };
        // Gathered from the buffer at the positions: zeros.
        let types = Array::empty(ids.device(), position_ids.dims(), DType::I64)?;
        if types.device().computes() {
            let zeros = self.token_type_ids.narrow(1, 0, time)?;
            types.copy_(&zeros.broadcast_to(types.dims())?)?;
        }
        let position_ids = Tensor::from_array(position_ids);
        let types = Tensor::from_array(types.broadcast_to(&[batch, time])?);
        let words = layers::embedded(&self.word, ids, self.marks)?;
        let token_types = self.token_type.forward(&types)?;
        let mut sum = ops::add(&words, &token_types)?;
        let positions = self.position.forward(&position_ids)?;
        sum = ops::add(&sum, &positions)?;
        sum = self.norm.forward(&sum)?;
        sum = self.dropout.forward(&sum)?;
        // In the order of the library's variables.
        drop((words, token_types, positions));
        Ok(sum)
    }
}

/// `create_position_ids_from_input_ids`: the number of tokens up to each one that are not padding, counted from `padding`; i64 `[batch, time]`.
fn counted(ids: &Tensor, padding: usize) -> Result<Array> {
    let device = ids.device();
    let array = |dtype| Array::empty(device, ids.dims(), dtype);
    let mask = {
        let _is_token = array(DType::Bool)?;
        array(DType::I32)?
    };
    let counts = {
        let narrow = {
            let sums = {
                let sums = array(DType::I64)?;
                let _converted = array(DType::I64)?;
                mask::scan(&sums, [ids.dims()[0], ids.dims()[1]])?;
                sums
            };
            let narrow = array(DType::I32)?;
            drop(sums);
            // plus what came before
            let counts = array(DType::I32)?;
            drop(narrow);
            counts
        };
        let counts = array(DType::I32)?;
        drop(narrow);
        counts
    };
    let positions = {
        let _wide = array(DType::I64)?;
        array(DType::I64)?
    };
    drop((mask, counts));
    if device.computes() {
        let tokens = ids.array().to_vec::<i64>()?;
        let mut values = Vec::with_capacity(tokens.len());
        for row in tokens.chunks(ids.dims()[1].max(1)) {
            let mut count = 0;
            values.extend(row.iter().map(|&token| {
                let is_token = token != padding as i64;
                count += i64::from(is_token);
                padding as i64 + if is_token { count } else { 0 }
            }));
        }
        positions.write(&values)?;
    }
    Ok(positions)
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, ids: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput> {
        let embedded = self.embedded(ids)?;
        let mask = stage.map_or(Ok(None), |stage| stage.mask(&embedded, said))?;
        Ok(EmbeddingOutput::held(embedded, BlockInputs { mask, ..BlockInputs::default() }))
    }
}

/// Parameters of the head's transform, which the optimizer sees after its bias.
const BEFORE_BIAS: usize = 4;

/// `BertOnlyMLMHead`, `RobertaLMHead`
fn masked_head(init: &Init, c: &Config, table: &Parameter) -> Result<MaskedHead> {
    let (init, transform, norm, activation) = if c.own.form == Form::Bert {
        let init = init.at("cls").at("predictions");
        (init.clone(), init.at("transform"), "LayerNorm", c.activation)
    } else {
        (init.at("lm_head"), init.at("lm_head"), "layer_norm", Activation::Gelu)
    };
    let init = &init;
    let dense = Linear::with_fill(&transform.at("dense"), c.width, c.width, true, SMALL)?;
    let norm = LayerNorm::new(&transform.at(norm), c.width, c.eps)?;
    let decoder = init.shared(table)?;
    let untied = if c.options.built_on_device { Some(untied_bias(init, c)?) } else { None };
    let bias = init.parameter("bias", &[c.vocabulary], Fill::Constant(0.0))?;
    drop(untied);
    Ok(MaskedHead { scope: init.scope(), activation, dense, norm, decoder, bias })
}

/// Returns the bias that exists when the last copy, which stays, is made. Made on the device, the output layer has weights and a bias of its own until
/// they are tied, and tying pads either bias by nothing, which copies it.
fn untied_bias(init: &Init, c: &Config) -> Result<Array> {
    let array = |dims: &[usize]| Array::empty(init.device(), dims, init.dtype());
    let weight = array(&[c.vocabulary, c.width])?;
    let layers = array(&[c.vocabulary])?;
    let own = array(&[c.vocabulary])?;
    drop(weight);
    let _padded = array(&[c.vocabulary])?;
    drop(layers);
    Ok(own)
}

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
    query: Linear,
    key: Linear,
    value: Linear,
    attention_output: AddNorm,
    intermediate: Linear,
    output: AddNorm,
}

impl Layer {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let attention = init.at("attention");
        let square = |name: &str| Linear::with_fill(&attention.at("self").at(name), c.width, c.width, true, SMALL);
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attention, c.attention_dropout)?,
            query: square("query")?,
            key: square("key")?,
            value: square("value")?,
            attention_output: AddNorm::new(&attention.at("output"), c, c.width)?,
            intermediate: Linear::with_fill(&init.at("intermediate").at("dense"), c.width, c.inner, true, SMALL)?,
            output: AddNorm::new(&init.at("output"), c, c.inner)?,
        })
    }

    fn attention(&self, hidden: &Tensor, context: &BlockInputs) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let head = width / c.heads;
        let heads = |projection: &Linear| attention::heads(&projection.forward(hidden)?, c.heads);
        let (q, k, v) = (heads(&self.query)?, heads(&self.key)?, heads(&self.value)?);
        let call = Call {
            mask: context.mask.as_ref(),
            softmax: Softmax::OwnType,
            ..Call::new(c.options.attention, head, &self.weights_dropout)
        };
        let (y, weights) = call.attend(&q, &k, &v)?;
        drop((q, k, v));
        Ok((attention::join(&y)?, weights))
    }
}

impl blocks::Block for Layer {
    fn forward(&self, hidden: &Tensor, context: &BlockInputs) -> Result<Tensor> {
        let _scope = memcore::context::scope(self.scope);
        let (attended, _weights) = {
            let (attended, weights) = self.attention(hidden, context)?;
            (self.attention_output.forward(&attended, hidden)?, weights)
        };
        let mut ff = self.intermediate.forward(&attended)?;
        ff = self.config.activation.apply(&ff)?;
        self.output.forward(&ff, &attended)
    }
}

/// A projection, dropout, and a norm of the sum with the residual: `BertSelfOutput` and `BertOutput`.
struct AddNorm {
    dense: Linear,
    norm: LayerNorm,
    dropout: Dropout,
}

impl AddNorm {
    fn new(init: &Init, c: &Config, inputs: usize) -> Result<Self> {
        Ok(Self {
            dense: Linear::with_fill(&init.at("dense"), inputs, c.width, true, SMALL)?,
            norm: LayerNorm::new(&init.at("LayerNorm"), c.width, c.eps)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
        })
    }

    fn forward(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        let mut hidden = self.dense.forward(x)?;
        hidden = self.dropout.forward(&hidden)?;
        let sum = ops::add(&hidden, residual)?;
        self.norm.forward(&sum)
    }
}
