//! Optimizers, each in PyTorch's three implementations, which differ only in temporaries and launches.
//!
//! - `Loop`: one parameter after another.
//! - `Foreach`: each operation over all parameters at once; PyTorch's default on a GPU.
//! - `Fused`: one kernel for everything.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod asgd;
mod bitsandbytes;
mod clip;
mod locals;
mod moments;
mod muon;
mod nadam;
mod radam;
mod rmsprop;
mod rprop;
mod rule;
mod sgd;

pub use adadelta::{Adadelta, AdadeltaOptions};
pub use adafactor::{Adafactor, AdafactorOptions, PretrainedAdafactor, PretrainedAdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions};
pub use adamax::{Adamax, AdamaxOptions};
pub use asgd::{Asgd, AsgdOptions};
pub use bitsandbytes::{BitsAndBytes, BitsAndBytesOptions};
pub(crate) use clip::by_device;
pub use clip::{clip_grad_norm, clip_grad_norm_with, clip_grad_value};
pub use muon::{Muon, MuonOptions};
pub use nadam::{NAdam, NAdamOptions};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use rprop::{Rprop, RpropOptions};
pub use rule::ByRule;
pub use sgd::{Sgd, SgdOptions};

use std::ops::Deref;

use crate::array::Array;
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::error::Result;
use crate::nn::Parameter;

/// One of PyTorch's implementations of an optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    /// One parameter after another.
    Loop,
    /// Each operation over all parameters at once.
    #[default]
    Foreach,
    /// One kernel for everything.
    Fused,
}

impl Implementation {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Foreach => "foreach",
            Self::Fused => "fused",
        }
    }
}

/// The parameters of an optimizer. They are dropped from the last one on, in the order in which Python frees a list.
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

/// The state that an optimizer keeps for one parameter.
pub struct ParameterState {
    /// Steps taken; `None` if the optimizer does not count them.
    pub steps: Option<i32>,
    /// Its tensors under PyTorch's names: `exp_avg`, `momentum_buffer`, …
    pub tensors: Vec<(&'static str, Array)>,
}

/// An algorithm that updates parameters from their gradients.
pub trait Optimizer: Send {
    /// Takes one step. Parameters without a gradient stay unchanged. State is allocated at the first step that needs
    /// it.
    ///
    /// # Errors
    /// Errors of the device. After an out of memory some parameters may have been updated and others not.
    fn step(&mut self) -> Result<()>;

    /// Returns the state of the parameter at `index`; `None` before its first step, and for an optimizer without state.
    fn state(&self, index: usize) -> Option<ParameterState>;

    /// Allocates the state that a first step would allocate for the parameter at `index`, as after `steps` steps. The
    /// tensors are contiguous and hold 0, for the caller to overwrite. `None` for an optimizer without state.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an index beyond the parameters; errors of the device.
    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>>;

    /// The parameters, in order.
    fn parameters(&self) -> &[Parameter];

    /// True if the optimizer's kernel unscales the gradients itself, as PyTorch's fused ones do.
    fn takes_loss_scale(&self) -> bool {
        false
    }

    /// The name to which [`Optimizer::zero_grad`] is attributed, as a profiler shows it: `zero_grad:SGD.zero_grad`.
    fn zero_grad_name(&self) -> &'static str;

    /// Frees the gradients (`set_to_none`), in the order of the parameters, or fills them with 0.
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

/// Returns the parameter at `index`.
fn nth(parameters: &[Parameter], index: usize) -> Result<&Parameter> {
    let beyond = || crate::Error::invalid("optimizer", format!("parameter {index} of {}", parameters.len()));
    parameters.get(index).ok_or_else(beyond)
}

/// The indices and gradients of the parameters that have a gradient.
fn with_gradients(parameters: &[Parameter]) -> Vec<(usize, Array)> {
    parameters.iter().enumerate().filter_map(|(i, p)| Some((i, p.grad()?))).collect()
}

/// Returns every array negated, as new arrays: `maximize` does that to the gradients.
fn negated(arrays: &[Array]) -> Result<Vec<Array>> {
    let _op = crate::context::op("_foreach_neg");
    arrays.iter().map(|a| a.unary(UnaryOp::Neg)).collect()
}

/// Returns `-grad` under `maximize`, else `grad`. The gradient in `held` is freed only after the new one exists, as in
/// PyTorch.
fn negated_in_place_of(held: &mut Option<Array>, grad: Array, maximize: bool) -> Result<Array> {
    let next = if maximize { crate::context::within("neg", || grad.unary(UnaryOp::Neg))? } else { grad };
    *held = None;
    Ok(next)
}

/// Returns `grad + weight_decay·parameter` for each: as new arrays, or in place if the gradients are already
/// temporaries (`own`).
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

/// Frees a list of temporaries from its end, in the order in which Python frees a list.
fn drop_reversed(mut arrays: Vec<Array>) {
    while arrays.pop().is_some() {}
}

/// Properties of optimizers besides their arithmetic, which the conformance suite `optimizers` compares with PyTorch's.
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::Meta;
    use crate::{DType, Device};

    /// Two parameters with gradients, on a device without values.
    fn parameters() -> Vec<Parameter> {
        let device = Device::builder(Arc::new(Meta::default())).build();
        let make = |name: &str| {
            let parameter = Parameter::new(name, Array::zeros(&device, &[3], DType::F32).unwrap());
            parameter.tensor().set_grad(Some(Array::zeros(&device, &[3], DType::F32).unwrap()));
            parameter
        };
        vec![make("a"), make("b")]
    }

    fn sgd(options: SgdOptions) -> Result<Sgd> {
        Sgd::new(parameters(), options)
    }

    fn every(implementation: Implementation) -> Vec<Box<dyn Optimizer>> {
        let momentum = SgdOptions { momentum: 0.9, implementation, ..SgdOptions::default() };
        let adam = AdamOptions { implementation, ..AdamOptions::adam() };
        let mut out: Vec<Box<dyn Optimizer>> =
            vec![Box::new(sgd(momentum).unwrap()), Box::new(Adam::new(parameters(), adam).unwrap())];
        if implementation != Implementation::Fused {
            let rms_prop = RmsPropOptions { implementation, ..RmsPropOptions::default() };
            let adagrad = AdagradOptions { implementation, ..AdagradOptions::default() };
            out.push(Box::new(RmsProp::new(parameters(), rms_prop).unwrap()));
            out.push(Box::new(Adagrad::new(parameters(), adagrad).unwrap()));
        }
        out
    }

    const IMPLEMENTATIONS: [Implementation; 3] = [Implementation::Loop, Implementation::Foreach, Implementation::Fused];

    #[test]
    fn nesterov_needs_a_momentum_and_no_dampening() {
        let nesterov = SgdOptions { nesterov: true, momentum: 0.9, ..SgdOptions::default() };
        assert!(sgd(nesterov).is_ok());
        assert!(sgd(SgdOptions { momentum: 0.0, ..nesterov }).is_err());
        assert!(sgd(SgdOptions { dampening: 0.1, ..nesterov }).is_err());
    }

    /// A step overwrites values that a node may have saved: autograd must see that.
    #[test]
    fn a_step_counts_as_a_write_to_each_parameter() {
        for implementation in IMPLEMENTATIONS {
            for mut optimizer in every(implementation) {
                let versions = |o: &dyn Optimizer| {
                    o.parameters().iter().map(|p| p.array().storage().version()).collect::<Vec<u32>>()
                };
                let before = versions(&*optimizer);
                optimizer.step().unwrap();
                for (before, after) in before.iter().zip(versions(&*optimizer)) {
                    assert!(after > *before, "{}, {implementation:?}", optimizer.zero_grad_name());
                }
            }
        }
    }

    #[test]
    fn the_fused_kernels_alone_take_the_loss_scale() {
        for implementation in IMPLEMENTATIONS {
            for optimizer in every(implementation) {
                assert_eq!(optimizer.takes_loss_scale(), implementation == Implementation::Fused);
            }
        }
    }

    #[test]
    fn state_is_made_for_parameters_that_are_there() {
        for mut optimizer in every(Implementation::Foreach) {
            assert!(optimizer.make_state(1, 5).unwrap().is_some());
            assert!(optimizer.make_state(2, 5).is_err(), "{}", optimizer.zero_grad_name());
        }
        assert!(sgd(SgdOptions::default()).unwrap().make_state(0, 5).unwrap().is_none());
    }

    #[test]
    fn gradients_are_taken_away_or_kept() {
        for optimizer in every(Implementation::Foreach) {
            optimizer.zero_grad(false).unwrap();
            assert!(optimizer.parameters().iter().all(|p| p.grad().is_some()));
            optimizer.zero_grad(true).unwrap();
            assert!(optimizer.parameters().iter().all(|p| p.grad().is_none()));
        }
    }
}
