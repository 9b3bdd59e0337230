//! Which layers have low-rank adapters, and of which sizes.

use std::fmt;

/// Sizes and factors of low-rank adapters, as PEFT's `LoraConfig` has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRank {
    /// `r`: features between the two matrices.
    pub rank: usize,
    /// What the result is multiplied with.
    pub scaling: f64,
    /// `lora_dropout`: probability of dropping an element of the input.
    pub dropout: f64,
    /// `use_dora`: the length of each row of the weight is trained, too.
    pub magnitudes: bool,
}

impl fmt::Display for LowRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)
    }
}

/// The kinds of layers that can have an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A linear layer.
    Linear,
    /// A table of embeddings.
    Table,
    /// A convolution of two dimensions.
    Convolution,
}
