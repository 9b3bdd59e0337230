//! Head that a configuration and the options request, and its layers.

use lab_base::error::{self, Error};
use memcore::nn::{Activation, Dropout, Fill, Init, Linear, Module, Sequential};
use memcore::{Result, Tensor, ops};
use serde_json::Value;

use super::head::{Family, Head};
use super::keys::Keys;
use super::options::Options;
use super::releases::{REPRESENTED, Release};

/// Kind of an example's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// `regression`: values; the squared error.
    Regression,
    /// `single_label_classification`: a class; cross entropy.
    SingleLabel,
    /// `multi_label_classification`: a probability for each class; binary cross entropy.
    MultiLabel,
}

/// Head that a configuration and the options request.
#[derive(Clone, Debug)]
pub(super) struct HeadConfig {
    pub(super) head: Head,
    /// Library's name of the network with this head.
    pub(super) class: String,
    /// True if neither the file nor an option names the head.
    assumed: bool,
    /// Number of classes, or values.
    pub(super) labels: usize,
    pub(super) problem: Problem,
    /// The padding token.
    pub(super) padding: Option<i64>,
    /// Number of texts to choose from.
    pub(super) choices: usize,
    /// `classifier_dropout`, if given.
    classifier_dropout: Option<f64>,
    /// `hidden_dropout`, if given.
    hidden_dropout: Option<f64>,
    /// `token_classification_bias`
    token_bias: bool,
    /// Release whose rules are used.
    release: Release,
}

/// Default number of texts to choose from.
const CHOICES: usize = 4;

impl HeadConfig {
    /// Reads the head for the family of a `model_type`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a class or a head that the family lacks, or that is not supported; the message lists those that are.
    pub(super) fn read(keys: &Keys<'_>, model_type: &str, family: &Family, options: &Options) -> error::Result<Self> {
        let named = named(keys)?;
        let head = match (options.head, &named[..]) {
            (Some(head), _) if family.heads.contains(&head) => head,
            (Some(head), _) => {
                let problem =
                    format!("vramlab does not support {} for {model_type}; known: {}", head.name(), family.classes());
                return Err(Error::usage("head", problem));
            }
            (None, []) => family.heads[0],
            (None, [class]) => family.head(class).ok_or_else(|| {
                let problem =
                    format!("vramlab does not support {class:?} for {model_type}; known: {}", family.classes());
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
        Ok(Self {
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
            release: options.transformers.unwrap_or(REPRESENTED),
        })
    }

    /// Returns `classifier_dropout`, or its default.
    pub(super) fn dropout(&self, otherwise: f64) -> f64 {
        self.classifier_dropout.unwrap_or(otherwise)
    }

    /// Describes the network in one line: the class, the sizes of the body, the head's settings.
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
        format!("{}{assumed} of {sizes}{particular}, by transformers {}", self.class, self.release)
    }

    /// Makes the head of a decoder's class on the hidden states; `classifier` names the layer of tokens, `lm_head` makes the language model's.
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

/// Returns the classes that the file names.
fn named(keys: &Keys<'_>) -> error::Result<Vec<String>> {
    Ok(keys.names("architectures")?.unwrap_or_default().into_iter().map(String::from).collect())
}

/// Returns the number of labels and their kind.
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

/// Initial weights of the library's heads.
pub(super) const SMALL: Fill = Fill::Normal { std: 0.02 };

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

/// Makes a layer on `hidden[:, 0]`, as wide, with a function: a pooler, or the equivalent first layer of a classifier. With a probability, values are
/// dropped before the layer.
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
