//! Choices of a run that have a few names.

use std::fmt;
use std::str::FromStr;

use lab_base::figures::grouped;
use lab_base::{as_text, named};
use lab_imports::exported::LossName;
use lab_imports::huggingface::{Attention, End};
use memcore::backend::Tf32;
use memcore::optim::Implementation;

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionName {
    /// Separate operators: the scores are kept.
    Eager,
    /// One kernel, as `scaled_dot_product_attention`.
    Sdpa,
}

named!(AttentionName, "form of attention", { Eager = "eager", Sdpa = "sdpa" });

impl From<AttentionName> for Attention {
    fn from(name: AttentionName) -> Self {
        match name {
            AttentionName::Eager => Attention::Eager,
            AttentionName::Sdpa => Attention::Sdpa,
        }
    }
}

/// How an optimizer goes through its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerForm {
    /// One after the other.
    Loop,
    /// Lists at a time, as PyTorch does on a GPU.
    Foreach,
    /// One kernel.
    Fused,
}

named!(OptimizerForm, "form of an optimizer", { Loop = "loop", Foreach = "foreach", Fused = "fused" });

impl From<OptimizerForm> for Implementation {
    fn from(form: OptimizerForm) -> Self {
        match form {
            OptimizerForm::Loop => Implementation::Loop,
            OptimizerForm::Foreach => Implementation::Foreach,
            OptimizerForm::Fused => Implementation::Fused,
        }
    }
}

impl From<Implementation> for OptimizerForm {
    fn from(implementation: Implementation) -> Self {
        match implementation {
            Implementation::Loop => OptimizerForm::Loop,
            Implementation::Foreach => OptimizerForm::Foreach,
            Implementation::Fused => OptimizerForm::Fused,
        }
    }
}

/// What `zero_grad` leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroGrad {
    /// No gradients: `set_to_none=True`.
    None,
    /// Zeros: `set_to_none=False`.
    Zero,
}

named!(ZeroGrad, "kind of zero_grad", { None = "none", Zero = "zero" });

/// What an evaluation keeps of its batches until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalKeep {
    /// Nothing: each loss is read as a number.
    Nothing,
    /// The results of every batch, in a list.
    Logits,
}

named!(EvalKeep, "part of an evaluation", { Nothing = "nothing", Logits = "logits" });

/// An allocation policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocatorName {
    /// PyTorch's.
    #[default]
    Caching,
    /// No cache: every request goes to the driver.
    Direct,
}

named!(AllocatorName, "allocator", { Caching = "caching", Direct = "direct" });

/// Products of float32 that may be computed in TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tf32Choice {
    /// Convolutions: `torch.backends.cudnn.allow_tf32`.
    Conv,
    /// Products of matrices as well: `torch.backends.cuda.matmul.allow_tf32`.
    All,
}

named!(Tf32Choice, "use of TF32", { Conv = "conv", All = "all" });

impl From<Tf32Choice> for Tf32 {
    fn from(choice: Tf32Choice) -> Tf32 {
        match choice {
            Tf32Choice::Conv => Tf32::Convolutions,
            Tf32Choice::All => Tf32::All,
        }
    }
}

/// The most sizes of a list.
const MAX_SIZES: usize = 1024;

/// The largest size of a list. Products of two stay within 64 bits.
const MAX_SIZE: usize = 1 << 30;

/// Sizes that come in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeList(Vec<usize>);

impl SizeList {
    /// These sizes, in turn.
    ///
    /// # Errors
    /// More than 1024 sizes.
    pub fn new(sizes: Vec<usize>) -> Result<Self, String> {
        match sizes.len() {
            count if count > MAX_SIZES => Err(format!("{count} sizes are more than {MAX_SIZES}")),
            _ => Ok(Self(sizes)),
        }
    }

    /// The sizes, in order.
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    /// The largest of them.
    pub fn largest(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(1)
    }

    /// As a sentence has them: all, or of many the ends.
    pub fn in_words(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|size| grouped(*size as u64, ' ')).collect();
        match &words[..] {
            [first, second, .., last] if words.len() > 5 => format!("{first}, {second}, …, {last}"),
            _ => words.join(", "),
        }
    }
}

impl FromStr for SizeList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |word: &str| match word.trim().parse() {
            Ok(0) => Err("each must be at least 1".to_string()),
            Ok(size) if size > MAX_SIZE => Err(format!("{size} is more than {MAX_SIZE}")),
            Ok(size) => Ok(size),
            Err(_) => Err(format!("{text:?}: expected numbers, as in 32,32,17")),
        };
        Self::new(text.split(',').map(size).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for SizeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&words.join(","))
    }
}

as_text!(SizeList);

/// What the loss is, or how it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossChoice {
    /// A function of a `.pt2`'s first output.
    Named(LossName),
    /// A decoder's own, with output layer and loss under `torch.utils.checkpoint`.
    Checkpointed,
    /// The same in so many parts of the tokens.
    Chunked(usize),
    /// Liger's fused linear cross entropy.
    Liger,
}

/// Parts of `chunked` unless said: those of torchtune's losses.
pub(super) const CHUNKS: usize = 8;

/// The most parts.
const MAX_CHUNKS: usize = 4096;

impl LossChoice {
    /// Names as they are offered.
    pub const NAMES: &'static [&'static str] =
        &["sum", "mean", "cross-entropy", "nll", "mse", "checkpointed", "chunked", "chunked:N", "liger"];

    /// The function of a `.pt2`'s output.
    pub fn of_output(self) -> Option<LossName> {
        if let Self::Named(name) = self { Some(name) } else { None }
    }

    /// How a decoder's loss is computed.
    pub fn end(self) -> Option<End> {
        match self {
            Self::Named(_) => None,
            Self::Checkpointed => Some(End::Checkpointed),
            Self::Chunked(parts) => Some(End::Chunked(parts)),
            Self::Liger => Some(End::Liger),
        }
    }
}

impl FromStr for LossChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text.strip_prefix("chunked") {
            Some("") => return Ok(Self::Chunked(CHUNKS)),
            Some(rest) => rest.strip_prefix(':'),
            None if text == "checkpointed" => return Ok(Self::Checkpointed),
            None if text == "liger" => return Ok(Self::Liger),
            None => return text.parse().map(Self::Named),
        };
        match number.and_then(|number| number.parse().ok()) {
            Some(parts @ 1..=MAX_CHUNKS) => Ok(Self::Chunked(parts)),
            _ => Err(format!("{text:?}: expected chunked, or chunked:N with N from 1 to {MAX_CHUNKS}")),
        }
    }
}

impl fmt::Display for LossChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::Checkpointed => f.write_str("checkpointed"),
            Self::Liger => f.write_str("liger"),
            Self::Chunked(parts) => write!(f, "chunked:{parts}"),
        }
    }
}

as_text!(LossChoice);

/// A variable of an environment: `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self { name: name.into(), value: value.into() }),
            _ => Err("expected NAME=VALUE".into()),
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

as_text!(Variable);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        let sizes: SizeList = "32, 32,1024".parse().unwrap();
        assert_eq!((sizes.to_string(), sizes.largest()), ("32,32,1024".to_string(), 1024));
        assert_eq!(sizes.in_words(), "32, 32, 1\u{202f}024".replace('\u{202f}', " "));
        assert_eq!("1,2,3,4,5,6".parse::<SizeList>().unwrap().in_words(), "1, 2, …, 6");
        for (text, part) in [("", "as in 32"), ("3,,4", "as in 32"), ("8,0", "at least 1"), ("9999999999", "more than")]
        {
            assert!(text.parse::<SizeList>().unwrap_err().contains(part), "{text}");
        }
        assert!(vec!["1"; 1025].join(",").parse::<SizeList>().unwrap_err().contains("more than 1024"));
    }
}
