//! Heads on a network's last hidden states: the classes that `architectures` names, by family.

use lab_base::named;

/// A kind of head, whatever the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Scores of the next token, at every position.
    CausalLm,
    /// Scores of the hidden tokens, at every position.
    MaskedLm,
    /// Scores of a decoder's next token, with an encoder.
    ConditionalGeneration,
    /// Classes of an example, or one value.
    SequenceClassification,
    /// Classes of each token.
    TokenClassification,
    /// Choice among several texts.
    MultipleChoice,
    /// Beginning and end of an answer.
    QuestionAnswering,
    /// Whether one sentence follows the other.
    NextSentence,
    /// Classes of an image.
    ImageClassification,
    /// Only the hidden states.
    BaseModel,
    /// Only the hidden states of the encoder.
    EncoderModel,
}

named!(Head, "head", {
    CausalLm = "causal-lm",
    MaskedLm = "masked-lm",
    ConditionalGeneration = "conditional-generation",
    SequenceClassification = "sequence-classification",
    TokenClassification = "token-classification",
    MultipleChoice = "multiple-choice",
    QuestionAnswering = "question-answering",
    NextSentence = "next-sentence-prediction",
    ImageClassification = "image-classification",
    BaseModel = "base-model",
    EncoderModel = "encoder-model",
});

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

    /// Returns the part of the class's name after the family's.
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

    /// True if it is a language model's: scores of tokens.
    pub(super) const fn is_language_model(self) -> bool {
        matches!(self, Self::CausalLm | Self::MaskedLm | Self::ConditionalGeneration)
    }

    /// True if it reads labels as classes or values of an example.
    pub(super) const fn has_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification | Self::QuestionAnswering)
    }
}

/// Prefix of a family's classes, and its supported heads; the first head is assumed if a file names none.
pub(super) struct Family {
    prefix: &'static str,
    pub(super) heads: &'static [Head],
    /// Default of `pad_token_id`.
    pub(super) padding: Option<u64>,
}

pub(super) const ENCODERS: &[Head] = &[
    Head::MaskedLm,
    Head::SequenceClassification,
    Head::TokenClassification,
    Head::MultipleChoice,
    Head::QuestionAnswering,
    Head::BaseModel,
    Head::NextSentence,
];

pub(super) const DECODERS: &[Head] = &[
    Head::CausalLm,
    Head::SequenceClassification,
    Head::BaseModel,
    Head::TokenClassification,
    Head::QuestionAnswering,
];

pub(super) const OPT: &[Head] =
    &[Head::CausalLm, Head::SequenceClassification, Head::BaseModel, Head::QuestionAnswering];

pub(super) const PICTURES: &[Head] = &[Head::ImageClassification, Head::BaseModel];

pub(super) const PAIRS: &[Head] =
    &[Head::ConditionalGeneration, Head::TokenClassification, Head::QuestionAnswering, Head::EncoderModel];

impl Family {
    pub(super) const fn new(prefix: &'static str, heads: &'static [Head], padding: Option<u64>) -> Self {
        Self { prefix, heads, padding }
    }

    pub(super) fn class(&self, head: Head) -> String {
        let suffix = if self.prefix == "GPT2" && head == Head::CausalLm { "LMHeadModel" } else { head.suffix() };
        format!("{}{suffix}", self.prefix)
    }

    /// Returns the head of a class, also by its old name.
    pub(super) fn head(&self, class: &str) -> Option<Head> {
        if self.prefix == "T5" && class == "T5WithLMHeadModel" {
            return Some(Head::ConditionalGeneration);
        }
        self.heads.iter().copied().find(|head| self.class(*head) == class)
    }

    pub(super) fn classes(&self) -> String {
        self.heads.iter().map(|head| format!("{} ({})", self.class(*head), head.name())).collect::<Vec<_>>().join(", ")
    }
}
