//! Settings that every family's configuration has, under various keys.

use std::ops::Deref;

use lab_base::error::Result;

use super::keys::Keys;
use super::layers::Activation;
use super::options::{Options, Sizes};

/// Sizes and rates that all families have.
#[derive(Clone, Debug)]
pub(super) struct Common {
    /// Tokens of the vocabulary, or classes of images.
    pub(super) vocabulary: usize,
    /// Largest number of tokens per example.
    pub(super) positions: usize,
    pub(super) width: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    /// Features between the layers of a feed-forward part.
    pub(super) inner: usize,
    pub(super) activation: Activation,
    /// Dropout of hidden states.
    pub(super) dropout: f64,
    pub(super) attention_dropout: f64,
    pub(super) eps: f64,
    /// True if the output layer shares the weights of the token table.
    pub(super) tied: bool,
    pub(super) use_cache: bool,
    pub(super) options: Options,
}

/// Keys of most families' sizes: vocabulary, positions, width, layers, heads, features between feed-forward layers.
pub(super) const SIZES: [&str; 6] = [
    "vocab_size",
    "max_position_embeddings",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
];

impl Common {
    /// Reads sizes under these keys, or takes the defaults of absent ones; no dropout, and nothing tied or cached.
    ///
    /// # Errors
    /// Keys of another type.
    pub(super) fn read(
        keys: &Keys<'_>,
        options: &Options,
        names: [&'static str; 6],
        defaults: [usize; 6],
        activation: Activation,
    ) -> Result<Self> {
        let mut sizes = defaults;
        for (size, name) in sizes.iter_mut().zip(names) {
            *size = keys.size(name, *size)?;
        }
        let [vocabulary, positions, width, layers, heads, inner] = sizes;
        let (dropout, attention_dropout, eps, options) = (0.0, 0.0, 1e-5, options.clone());
        let (tied, use_cache) = (false, false);
        Ok(Self {
            vocabulary,
            positions,
            width,
            layers,
            heads,
            inner,
            activation,
            dropout,
            attention_dropout,
            eps,
            tied,
            use_cache,
            options,
        })
    }

    pub(super) fn sizes(&self) -> Sizes {
        let Self { layers, width, heads, vocabulary, positions, .. } = *self;
        Sizes { layers, width, heads, classes: vocabulary, positions }
    }
}

/// Configuration of a family: the common settings, and its own.
#[derive(Clone, Debug)]
pub(super) struct Config<Own> {
    pub(super) common: Common,
    pub(super) own: Own,
}

impl<Own> Deref for Config<Own> {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}
