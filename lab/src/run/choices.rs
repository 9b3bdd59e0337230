//! Choices of a run that have a few names.

use std::fmt;
use std::str::FromStr;

use lab_base::{as_text, named};
use lab_imports::huggingface::Attention;
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
