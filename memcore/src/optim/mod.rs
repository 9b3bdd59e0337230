//! Optimizers, each in PyTorch's three implementations, which differ in temporaries and launches and in nothing else.
//!
//! - `Loop`: one parameter after the other.
//! - `Foreach`: one operation over all parameters after the other; PyTorch's default on a GPU.
//! - `Fused`: one kernel for everything.

mod adagrad;
mod adam;
mod clip;
mod rmsprop;
mod sgd;

pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions};
pub use clip::{clip_grad_norm, clip_grad_norm_with, clip_grad_value};
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use sgd::{Sgd, SgdOptions};

use std::ops::Deref;

use crate::array::Array;
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::error::Result;
use crate::nn::Parameter;

/// Which of PyTorch's implementations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    /// One parameter after the other.
    Loop,
    /// One operation over all parameters after the other.
    #[default]
    Foreach,
    /// One kernel for everything.
    Fused,
}

/// The parameters of an optimizer. They go from the last one on, as Python's lists do.
struct Parameters(Vec<Parameter>);

impl Deref for Parameters {
    type Target = [Parameter];

    fn deref(&self) -> &[Parameter] {
        &self.0
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// What an optimizer keeps of one parameter.
pub struct ParameterState {
    /// Steps taken, where the optimizer counts them.
    pub steps: Option<i32>,
    /// Its tensors under PyTorch's names: `exp_avg`, `momentum_buffer`, …
    pub tensors: Vec<(&'static str, Array)>,
}

/// Something that updates parameters from their gradients.
pub trait Optimizer {
    /// One step. Parameters without a gradient are left alone. State is made at the first step that needs it.
    ///
    /// # Errors
    /// Those of the device. After an out of memory some parameters may have been updated and others not.
    fn step(&mut self) -> Result<()>;

    /// What it keeps of the parameter of this number; `None` before its first step, and where it keeps nothing.
    fn state(&self, index: usize) -> Option<ParameterState>;

    /// Makes what a first step would make for the parameter of this number, as after `steps` steps. The tensors are contiguous and hold 0, for the
    /// caller to overwrite. `None` where the optimizer keeps nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a number beyond the parameters; those of the device.
    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>>;

    /// The parameters, in order.
    fn parameters(&self) -> &[Parameter];

    /// Whether a loss scaler leaves taking the scale off the gradients to the step, as PyTorch's does to fused ones.
    fn takes_scale(&self) -> bool {
        false
    }

    /// What [`Optimizer::zero_grad`] is attributed to, as a profiler shows it: `zero_grad:SGD.zero_grad`.
    fn zero_grad_name(&self) -> &'static str;

    /// Lets the gradients go (`set_to_none`), in the order of the parameters, or fills them with 0.
    ///
    /// # Errors
    /// Those of the device.
    fn zero_grad(&self, set_to_none: bool) -> Result<()> {
        let _op = crate::context::op(self.zero_grad_name());
        for parameter in self.parameters() {
            if set_to_none {
                parameter.tensor().set_grad(None);
            } else if let Some(grad) = parameter.grad() {
                grad.fill_(0.0)?;
            }
        }
        Ok(())
    }
}

/// The parameter of this number.
fn nth(parameters: &[Parameter], index: usize) -> Result<&Parameter> {
    let beyond = || crate::Error::invalid("optimizer", format!("parameter {index} of {}", parameters.len()));
    parameters.get(index).ok_or_else(beyond)
}

/// The parameters that have a gradient, by index, with it.
fn with_gradients(parameters: &[Parameter]) -> Vec<(usize, Array)> {
    parameters.iter().enumerate().filter_map(|(i, p)| Some((i, p.grad()?))).collect()
}

/// Every array negated, as new arrays: what `maximize` makes of the gradients.
fn negated(arrays: &[Array]) -> Result<Vec<Array>> {
    let _op = crate::context::op("_foreach_neg");
    arrays.iter().map(|a| a.unary(UnaryOp::Neg)).collect()
}

/// `grad + weight_decay·parameter` for each: new arrays, or, where the gradients are temporaries already (`own`), in place.
fn decayed<'a>(
    grads: Vec<Array>,
    parameters: impl Iterator<Item = &'a Array>,
    weight_decay: f64,
    own: bool,
) -> Result<Vec<Array>> {
    let _op = crate::context::op("_foreach_add");
    let decay = BinaryOp::Add { alpha: weight_decay };
    let one = |(grad, p): (&Array, &Array)| {
        if own { grad.binary_(decay, p).map(|()| grad.clone()) } else { grad.binary(decay, p) }
    };
    grads.iter().zip(parameters).map(one).collect()
}

/// Lets a list of temporaries go from its end, as Python's lists do.
fn drop_reversed(mut arrays: Vec<Array>) {
    while arrays.pop().is_some() {}
}
