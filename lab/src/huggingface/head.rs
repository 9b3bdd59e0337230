//! What stands on a network's last hidden states: the class that `architectures` names.

use memcore::nn::{Activation, Dropout, Fill, Init, Linear, Module, Sequential};
use memcore::{Result, Tensor, ops};
use serde_json::Value;

use super::keys::Keys;
use super::options::Options;
use super::releases::REPRESENTED;
use crate::error::{self, Error};

/// A kind of head, whatever the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Scores of the next token, at every position.
    CausalLm,
    /// Scores of the hidden tokens, at every position.
    MaskedLm,
    /// Scores of a decoder's next token, beside an encoder.
    ConditionalGeneration,
    /// Classes of an example, or one value.
    SequenceClassification,
    /// Classes of each token.
    TokenClassification,
    /// Which of several texts.
    MultipleChoice,
    /// Where an answer begins and ends.
    QuestionAnswering,
    /// Whether one sentence follows the other.
    NextSentence,
    /// Classes of a picture.
    ImageClassification,
    /// The hidden states alone.
    BaseModel,
    /// The hidden states of the encoder alone.
    EncoderModel,
}

impl Head {
    /// Every head, in the order in which they are listed.
    pub const ALL: [Self; 11] = [
        Self::CausalLm,
        Self::MaskedLm,
        Self::ConditionalGeneration,
        Self::SequenceClassification,
        Self::TokenClassification,
        Self::MultipleChoice,
        Self::QuestionAnswering,
        Self::NextSentence,
        Self::ImageClassification,
        Self::BaseModel,
        Self::EncoderModel,
    ];

    /// What it is called here.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CausalLm => "causal-lm",
            Self::MaskedLm => "masked-lm",
            Self::ConditionalGeneration => "conditional-generation",
            Self::SequenceClassification => "sequence-classification",
            Self::TokenClassification => "token-classification",
            Self::MultipleChoice => "multiple-choice",
            Self::QuestionAnswering => "question-answering",
            Self::NextSentence => "next-sentence-prediction",
            Self::ImageClassification => "image-classification",
            Self::BaseModel => "base-model",
            Self::EncoderModel => "encoder-model",
        }
    }

    /// What follows the family's name in the class's.
    const fn suffix(self) -> &'static str {
        match self {
            Self::CausalLm => "ForCausalLM",
            Self::MaskedLm => "ForMaskedLM",
            Self::ConditionalGeneration => "ForConditionalGeneration",
            Self::SequenceClassification => "ForSequenceClassification",
            Self::TokenClassification => "ForTokenClassification",
            Self::MultipleChoice => "ForMultipleChoice",
            Self::QuestionAnswering => "ForQuestionAnswering",
            Self::NextSentence => "ForNextSentencePrediction",
            Self::ImageClassification => "ForImageClassification",
            Self::BaseModel => "Model",
            Self::EncoderModel => "EncoderModel",
        }
    }

    /// Whether it is what the family was trained with: scores of tokens.
    pub(super) const fn is_language_model(self) -> bool {
        matches!(self, Self::CausalLm | Self::MaskedLm | Self::ConditionalGeneration)
    }

    /// Whether it reads labels as classes or values of an example.
    const fn has_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification | Self::QuestionAnswering)
    }
}

/// How classes begin in a family, and which heads of it are represented; the first is assumed where a file names none.
struct Family {
    prefix: &'static str,
    heads: &'static [Head],
    /// What an absent `pad_token_id` is.
    padding: Option<u64>,
}

const ENCODERS: &[Head] = &[
    Head::MaskedLm,
    Head::SequenceClassification,
    Head::TokenClassification,
    Head::MultipleChoice,
    Head::QuestionAnswering,
    Head::BaseModel,
    Head::NextSentence,
];

const DECODERS: &[Head] = &[
    Head::CausalLm,
    Head::SequenceClassification,
    Head::BaseModel,
    Head::TokenClassification,
    Head::QuestionAnswering,
];

const OPT: &[Head] = &[Head::CausalLm, Head::SequenceClassification, Head::BaseModel, Head::QuestionAnswering];

const PICTURES: &[Head] = &[Head::ImageClassification, Head::BaseModel];

const PAIRS: &[Head] =
    &[Head::ConditionalGeneration, Head::TokenClassification, Head::QuestionAnswering, Head::EncoderModel];

impl Family {
    /// `None` for a `model_type` that is not represented.
    fn of(model_type: &str) -> Option<Self> {
        let (prefix, heads, padding) = match model_type {
            "bert" => ("Bert", ENCODERS, Some(0)),
            "distilbert" => ("DistilBert", &ENCODERS[..6], Some(0)),
            "roberta" => ("Roberta", &ENCODERS[..6], Some(1)),
            "gemma" => ("Gemma", &DECODERS[..4], Some(0)),
            "gpt2" => ("GPT2", DECODERS, None),
            "gpt_neox" => ("GPTNeoX", DECODERS, None),
            "llama" => ("Llama", DECODERS, None),
            "mistral" => ("Mistral", DECODERS, None),
            "opt" => ("OPT", OPT, Some(1)),
            "phi3" => ("Phi3", &DECODERS[..4], Some(32_000)),
            "qwen2" => ("Qwen2", DECODERS, None),
            "qwen3" => ("Qwen3", DECODERS, None),
            "mt5" => ("MT5", PAIRS, Some(0)),
            "t5" => ("T5", PAIRS, Some(0)),
            "vit" => ("ViT", PICTURES, None),
            _ => return None,
        };
        Some(Self { prefix, heads, padding })
    }

    fn class(&self, head: Head) -> String {
        let suffix = if self.prefix == "GPT2" && head == Head::CausalLm { "LMHeadModel" } else { head.suffix() };
        format!("{}{suffix}", self.prefix)
    }

    /// The head whose class is called so; by its old name too.
    fn head(&self, class: &str) -> Option<Head> {
        if self.prefix == "T5" && class == "T5WithLMHeadModel" {
            return Some(Head::ConditionalGeneration);
        }
        self.heads.iter().copied().find(|head| self.class(*head) == class)
    }

    fn classes(&self) -> String {
        self.heads.iter().map(|head| format!("{} ({})", self.class(*head), head.name())).collect::<Vec<_>>().join(", ")
    }
}

/// What the labels of an example are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// `regression`: values; the squared error.
    Regression,
    /// `single_label_classification`: a class; cross entropy.
    SingleLabel,
    /// `multi_label_classification`: a probability for each class; binary cross entropy.
    MultiLabel,
}

/// The head that a configuration and the options ask for.
#[derive(Clone, Debug)]
pub(super) struct HeadConfig {
    pub(super) head: Head,
    /// The library's name of the network with it.
    pub(super) class: String,
    /// Whether the file names no class, and nobody chose a head.
    assumed: bool,
    /// Classes, or values.
    pub(super) labels: usize,
    pub(super) problem: Problem,
    /// The token that pads.
    pub(super) padding: Option<i64>,
    /// Texts to choose from.
    pub(super) choices: usize,
    /// `classifier_dropout`, where said.
    classifier_dropout: Option<f64>,
    /// `hidden_dropout`, where said.
    hidden_dropout: Option<f64>,
    /// `token_classification_bias`
    token_bias: bool,
}

/// Texts to choose from, unless said.
const CHOICES: usize = 4;

impl HeadConfig {
    /// Of a family. `None` for a `model_type` that is not represented.
    ///
    /// # Errors
    /// [`Error::Usage`] for a class or a head that the family has not, or that is not represented; the message lists what is.
    pub(super) fn read(keys: &Keys<'_>, model_type: &str, options: &Options) -> error::Result<Option<Self>> {
        let Some(family) = Family::of(model_type) else { return Ok(None) };
        let named = named(keys)?;
        let head = match (options.head, &named[..]) {
            (Some(head), _) if family.heads.contains(&head) => head,
            (Some(head), _) => {
                let problem =
                    format!("{} is not represented for {model_type}; known: {}", head.name(), family.classes());
                return Err(Error::usage("head", problem));
            }
            (None, []) => family.heads[0],
            (None, [class]) => family.head(class).ok_or_else(|| {
                let problem = format!("{class:?} is not represented for {model_type}; known: {}", family.classes());
                keys.error("architectures", problem)
            })?,
            (None, several) => {
                let problem = format!("{several:?}: choose a head; known: {}", family.classes());
                return Err(keys.error("architectures", problem));
            }
        };
        let padding = match keys.get("pad_token_id") {
            Some(value) => {
                Some(value.as_i64().ok_or_else(|| keys.error("pad_token_id", format!("{value} is not a token")))?)
            }
            None if keys.is_null("pad_token_id") => None,
            None => family.padding.map(|id| id as i64),
        };
        if options.choices.is_some() && head != Head::MultipleChoice {
            return Err(Error::usage("choices", format!("{} chooses from nothing", family.class(head))));
        }
        let (labels, problem) = if head.has_labels() { labels(keys, head)? } else { (2, Problem::SingleLabel) };
        if head == Head::QuestionAnswering && labels != 2 && !family.heads.contains(&Head::CausalLm) {
            return Err(keys.error("num_labels", format!("{labels}: a beginning and an end are 2")));
        }
        let optional =
            |key| Ok::<_, Error>(if keys.get(key).is_some() { Some(keys.probability(key, 0.0)?) } else { None });
        Ok(Some(Self {
            head,
            class: family.class(head),
            assumed: options.head.is_none() && named.is_empty(),
            labels,
            problem,
            padding,
            choices: options.choices.unwrap_or(CHOICES),
            classifier_dropout: optional("classifier_dropout")?,
            hidden_dropout: optional("hidden_dropout")?,
            token_bias: keys.flag("token_classification_bias", true)?,
        }))
    }

    /// `classifier_dropout`, or what stands for it.
    pub(super) fn dropout(&self, otherwise: f64) -> f64 {
        self.classifier_dropout.unwrap_or(otherwise)
    }

    /// One line: the class, the sizes of the body, what is particular to the head.
    pub(super) fn describe(&self, sizes: &str) -> String {
        let assumed = if self.assumed { " (assumed: the file names no architectures)" } else { "" };
        let counted = |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
        let particular = match (self.head, self.problem) {
            (Head::SequenceClassification, Problem::Regression) => {
                format!(", {}: the loss is the squared error", counted(self.labels, "value"))
            }
            (Head::SequenceClassification, Problem::MultiLabel) => {
                format!(", {}: the loss is binary cross entropy", counted(self.labels, "label"))
            }
            (Head::SequenceClassification | Head::TokenClassification, _) => {
                format!(", {}", counted(self.labels, "label"))
            }
            (Head::MultipleChoice, _) => format!(", {} per example", counted(self.choices, "choice")),
            (Head::BaseModel | Head::EncoderModel, _) => {
                ", which has no loss: loss = out.last_hidden_state.mean()".to_string()
            }
            _ => String::new(),
        };
        format!("{}{assumed} of {sizes}{particular}, by transformers {REPRESENTED}", self.class)
    }

    /// What a decoder's class has on the hidden states; `classifier` names the layer of tokens, `lm_head` makes the language model's.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn on_decoder(
        &self,
        init: &Init,
        width: usize,
        classifier: &str,
        lm_head: impl FnOnce(&Init) -> Result<Linear>,
    ) -> Result<Sequential> {
        let mut layers = Sequential::new();
        match self.head {
            Head::SequenceClassification => layers.push(linear(&init.at("score"), width, self.labels, false)?),
            Head::TokenClassification => {
                let dropout = self.classifier_dropout.or(self.hidden_dropout).unwrap_or(0.1);
                layers.push(Dropout::new(&init.at("dropout"), dropout)?);
                layers.push(linear(&init.at(classifier), width, self.labels, self.token_bias)?);
            }
            Head::QuestionAnswering => layers.push(linear(&init.at("qa_outputs"), width, 2, true)?),
            Head::BaseModel => {}
            _ => layers.push(lm_head(&init.at("lm_head"))?),
        }
        Ok(layers)
    }
}

/// The classes that the file names.
fn named(keys: &Keys<'_>) -> error::Result<Vec<String>> {
    Ok(keys.names("architectures")?.unwrap_or_default().into_iter().map(String::from).collect())
}

/// The number of labels, and what they are.
fn labels(keys: &Keys<'_>, head: Head) -> error::Result<(usize, Problem)> {
    let labels = keys.size("num_labels", keys.map_len("id2label").or(keys.map_len("label2id")).unwrap_or(2))?;
    let problem = match keys.get("problem_type").map(Value::as_str) {
        None if labels == 1 => Problem::Regression,
        None | Some(Some("single_label_classification")) => Problem::SingleLabel,
        Some(Some("regression")) => Problem::Regression,
        Some(Some("multi_label_classification")) => Problem::MultiLabel,
        Some(_) => {
            let known = "regression, single_label_classification or multi_label_classification";
            return Err(keys.error("problem_type", format!("is not {known}")));
        }
    };
    if problem == Problem::SingleLabel && labels == 1 && head == Head::SequenceClassification {
        return Err(keys.error("problem_type", "single_label_classification of one label: the library refuses it"));
    }
    Ok((labels, problem))
}

/// Weights as the library draws them.
pub(super) const SMALL: Fill = Fill::Normal { std: 0.02 };

/// # Errors
/// Those of the device.
pub(super) fn linear(init: &Init, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
    Linear::with_fill(init, inputs, outputs, bias, SMALL)
}

/// The first token's hidden state: `hidden[:, 0]`.
pub(super) struct First;

impl Module for First {
    fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        ops::select(hidden, 1, 0)
    }
}

/// `hidden[:, 0]` through a layer as wide and a function: a pooler, or the first layer of a classifier that does the same. With a probability, values
/// are dropped before the layer.
///
/// # Errors
/// Those of the device.
pub(super) fn pooler(
    init: &Init,
    layer: &str,
    width: usize,
    function: fn(&Tensor) -> Result<Tensor>,
    dropout: Option<f64>,
) -> Result<Sequential> {
    let mut layers = Sequential::new();
    layers.push(First);
    if let Some(p) = dropout {
        layers.push(Dropout::new(&init.at("dropout"), p)?);
    }
    layers.push(linear(&init.at(layer), width, width, true)?);
    layers.push(Activation::new(&init.at("activation"), function));
    Ok(layers)
}
