//! Options of a network.

use lab_base::error::{Error, Result};
use serde::Serialize;

use super::network::{Input, Loss, Task};
use super::recompute::Recompute;

/// Differences of a network from its default form. An option that the network does not have is an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelOptions {
    /// Layers (mlp: hidden layers; gpt: blocks).
    pub layers: Option<usize>,
    /// Width (mlp: neurons per hidden layer; gpt: embedding; seq2seq-attention: embedding and state; resnet, vgg, mobilenet_v2, densenet121, convnext:
    /// channels of the first stage).
    pub width: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Tokens per example.
    pub sequence: Option<usize>,
    /// Number of different tokens.
    pub vocabulary: Option<usize>,
    /// Features per example (mlp).
    pub features: Option<usize>,
    /// Side of the pictures (resnet, vgg, mobilenet_v2, densenet121, convnext).
    pub image: Option<usize>,
    /// Classes.
    pub classes: Option<usize>,
    /// Dropout probability (convnext: the probability of leaving out the last block for an example).
    pub dropout: Option<f64>,
    /// True to use the fused attention kernel instead of the written-out form.
    pub fused_attention: bool,
    /// True if the output layer shares the token table.
    pub tied: bool,
    /// True to append intermediate results to a list that only the schedule's `clear` empties (two-layer: the hidden activations; seq2seq-attention:
    /// the attention weights).
    pub keep_intermediate: bool,
    /// Blocks that are recomputed in backward.
    pub recompute: Recompute,
}

impl ModelOptions {
    /// Returns a form of the named network that trains in well under a second on anything. Backends are compared with it.
    #[must_use]
    pub fn small(name: &str) -> Self {
        let default = ModelOptions::default();
        match name {
            "gpt" | "gpt2" => ModelOptions {
                layers: Some(2),
                width: Some(16),
                heads: Some(2),
                sequence: Some(8),
                vocabulary: Some(24),
                ..default
            },
            "resnet18" | "resnet34" | "resnet50" => {
                ModelOptions { width: Some(4), image: Some(32), classes: Some(5), ..default }
            }
            "mobilenet_v2" => ModelOptions { width: Some(2), image: Some(32), classes: Some(5), ..default },
            "densenet121" => ModelOptions { width: Some(2), image: Some(32), classes: Some(5), ..default },
            "convnext-tiny" | "convnext-small" | "convnext-base" | "convnext-large" => {
                ModelOptions { width: Some(4), image: Some(32), classes: Some(5), ..default }
            }
            "seq2seq-attention" => ModelOptions { width: Some(16), sequence: Some(4), vocabulary: Some(6), ..default },
            "vgg16" => ModelOptions { width: Some(1), classes: Some(5), ..default },
            _ => default,
        }
    }

    /// Fails if an option outside `supported` was given.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the model and the option.
    pub fn only(&self, model: &str, supported: &[&str]) -> Result<()> {
        let given = [
            ("layers", self.layers.is_some()),
            ("width", self.width.is_some()),
            ("heads", self.heads.is_some()),
            ("sequence", self.sequence.is_some()),
            ("vocabulary", self.vocabulary.is_some()),
            ("features", self.features.is_some()),
            ("image", self.image.is_some()),
            ("classes", self.classes.is_some()),
            ("dropout", self.dropout.is_some()),
            ("attention", self.fused_attention),
            ("tied", self.tied),
            ("keep-intermediate", self.keep_intermediate),
            ("checkpoint", self.recompute != Recompute::None),
        ];
        match given.iter().find(|(name, given)| *given && !supported.contains(name)) {
            Some((name @ "checkpoint", _)) => {
                Err(Error::usage(*name, format!("model {model} has no blocks that it names")))
            }
            Some((name, _)) => Err(Error::usage(*name, format!("model {model} has no such option"))),
            None => Ok(()),
        }
    }
}

/// Task of classifying pictures of three colours, 224 × 224 in 1,000 classes unless the options say otherwise. Sides must be multiples of `multiple`.
pub(super) fn image_task(options: &ModelOptions, multiple: usize) -> Result<(Task, usize)> {
    let (side, classes) = (options.image.unwrap_or(224), options.classes.unwrap_or(1000));
    if side == 0 || !side.is_multiple_of(multiple) {
        return Err(Error::usage("image", format!("{side}: a multiple of {multiple} is needed")));
    }
    for (option, size) in [("classes", classes), ("width", options.width.unwrap_or(1))] {
        if size == 0 {
            return Err(Error::usage(option, "must be at least 1"));
        }
    }
    Ok((Task { input: Input::Values(vec![3, side, side]), loss: Loss::CrossEntropy { classes } }, classes))
}
