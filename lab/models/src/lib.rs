//! Networks that can be trained: one small file for each, and one list of all.
//!
//! This crate takes a network's name and options, and returns an [`Architecture`]: its input, its task, its modules on a device, and the places where
//! it can be cut into pieces. [`Recompute`] says which of its blocks are recomputed in the backward pass. Optimizers and loops are not known here.

mod convnext;
mod densenet;
mod freeze;
mod gpt;
mod keeping;
mod lora;
mod mlp;
mod mobilenet;
mod network;
mod options;
mod pieces;
mod quantized;
mod recompute;
mod resnet;
mod seq2seq;
mod simple_cnn;
mod small_network;
mod vgg;

pub use freeze::Freeze;
pub use gpt::GptConfig;
pub use gpt::causal_mask;
pub use lora::{LORA_ALPHA, LORA_SWITCHES, Lora, LoraSwitch, LoraTarget, SAVED_MODULES, TUNING_FIELDS};
pub use network::{Architecture, Defaults, Input, Loss, Model, Places, Task};
pub use options::ModelOptions;
pub use pieces::{Measured, MeasuredParameter, measured};
pub use quantized::Quantized;
pub use recompute::Recompute;

use lab_base::error::{Error, Result};
use lab_base::similar::did_you_mean;

/// A constructor from options.
type Constructor = fn(&ModelOptions) -> Result<Box<dyn Architecture>>;

/// Every network by name.
pub const ALL: &[(&str, Constructor)] = &[
    ("linear", mlp::linear),
    ("two-layer", mlp::two_layer),
    ("mlp", mlp::mlp),
    ("simple-cnn", simple_cnn::simple_cnn),
    ("small-network", small_network::small_network),
    ("larger-conv", small_network::larger_conv),
    ("gpt", gpt::gpt),
    ("gpt2", gpt::gpt2),
    ("resnet18", resnet::resnet18),
    ("resnet34", resnet::resnet34),
    ("resnet50", resnet::resnet50),
    ("vgg16", vgg::vgg16),
    ("mobilenet_v2", mobilenet::mobilenet_v2),
    ("densenet121", densenet::densenet121),
    ("convnext-tiny", convnext::convnext_tiny),
    ("convnext-small", convnext::convnext_small),
    ("convnext-base", convnext::convnext_base),
    ("convnext-large", convnext::convnext_large),
    ("seq2seq-attention", seq2seq::seq2seq_attention),
];

/// Returns the network with this name and these options.
///
/// # Errors
/// [`Error::Usage`] for an unknown name (the message lists the known ones), or for an option that the network does not have.
pub fn architecture(name: &str, options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    match ALL.iter().find(|(known, _)| *known == name) {
        Some((_, construct)) => construct(options),
        None => {
            let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            let like = did_you_mean(name, known.iter().copied());
            Err(Error::usage("model", format!("unknown model {name:?}{like}; known: {}", known.join(", "))))
        }
    }
}
