//! Layers: parameters with paths, and the operators that use them.
//!
//! Names, shapes, order of creation and default initialisation are PyTorch's, so that a model written here allocates in
//! the same order.

mod adapted;
mod adapter;
mod attention;
mod conv;
mod converted;
mod embedding;
mod flats;
mod init;
mod linear;
mod norm;
mod parameter;
mod quantized;
mod sequential;
mod slots;
mod split_mix;

pub use adapted::{LayerKind, LowRank};
pub use adapter::{Base, LowRankAdapter};
pub use attention::{AttentionOptions, MultiHeadAttention, Variables};
pub use conv::{AvgPool2d, Conv2d, MaxPool2d};
pub use converted::{Converted, Untrained};
pub use embedding::Embedding;
pub use init::Init;
pub use linear::Linear;
pub use norm::{BatchNorm2d, GroupNorm, LayerNorm, RmsNorm};
pub use parameter::{Copied, Fill, Parameter, trained_values, write_f32};
pub use quantized::{Bits, Quantization};
pub use sequential::{Activation, Checkpoint, Dropout, Flatten, Sequential, Variable};
pub use slots::{ListSlot, Training, VariableSlot};

use crate::autograd::Tensor;
use crate::error::{Error, Result};

/// Parameters of several modules, each once, even if modules share some (tied weights).
fn parameters_of<'a>(modules: impl IntoIterator<Item = &'a dyn Module>) -> Result<Vec<Parameter>> {
    let mut all: Vec<Parameter> = Vec::new();
    for module in modules {
        for parameter in module.parameters()? {
            if !all.iter().any(|known| known.is_same(&parameter)) {
                all.push(parameter);
            }
        }
    }
    Ok(all)
}

/// A layer that maps one tensor to another.
pub trait Module: Send + Sync {
    /// Computes the result for `x`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `x` does not fit; errors of the device.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// The parameters, each once, in the order of PyTorch's `parameters()`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a module that does not list them (the default): [`Init::parameters`] has those of the
    /// whole model.
    fn parameters(&self) -> Result<Vec<Parameter>> {
        Err(Error::invalid("parameters", "this module does not list its own: Init::parameters has those of the model"))
    }
}
