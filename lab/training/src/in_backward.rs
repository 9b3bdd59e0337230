//! An optimizer whose step is taken in backward: each parameter has one of its own, which runs as soon as its gradient is there, and frees it.
//!
//! ```python
//! for p in model.parameters():
//!     p.register_post_accumulate_grad_hook(lambda p: (optimizers[p].step(), optimizers[p].zero_grad()))
//! ```

use std::sync::{Arc, Mutex, PoisonError, Weak};

use memcore::nn::Parameter;
use memcore::optim::{Optimizer, ParameterState};
use memcore::{Error, Result};

type Shared = Arc<Mutex<Box<dyn Optimizer>>>;

/// The optimizers, one for each parameter that is trained.
pub(super) struct InBackward {
    each: Vec<(usize, Shared)>,
    parameters: Vec<Parameter>,
    zero_grad_name: &'static str,
}

impl InBackward {
    /// Makes the optimizers with `make`, and has backward call them.
    ///
    /// # Errors
    /// Those of `make`; parameters that have another hook.
    pub(super) fn new<E: From<Error>>(
        parameters: Vec<Parameter>,
        make: impl Fn(Parameter) -> std::result::Result<Box<dyn Optimizer>, E>,
    ) -> std::result::Result<Self, E> {
        let (mut each, mut zero_grad_name) = (Vec::new(), "zero_grad");
        for (index, parameter) in parameters.iter().enumerate().filter(|(_, parameter)| parameter.is_trained()) {
            let optimizer = make(parameter.clone())?;
            zero_grad_name = optimizer.zero_grad_name();
            let optimizer: Shared = Arc::new(Mutex::new(optimizer));
            // The optimizer has the parameter, which must not hold it in turn.
            let held = Arc::downgrade(&optimizer);
            parameter.tensor().register_post_accumulate_grad_hook(Box::new(move |_| step(&held)))?;
            each.push((index, optimizer));
        }
        Ok(Self { each, parameters, zero_grad_name })
    }

    /// Result of `look` at the optimizer of the parameter at `index`; `None` if that is not trained.
    fn with_optimizer<T>(&self, index: usize, look: impl FnOnce(&mut dyn Optimizer) -> T) -> Option<T> {
        let (_, optimizer) = self.each.iter().find(|(place, _)| *place == index)?;
        Some(look(&mut **optimizer.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn step(optimizer: &Weak<Mutex<Box<dyn Optimizer>>>) -> Result<()> {
    let Some(optimizer) = optimizer.upgrade() else { return Ok(()) };
    let mut optimizer = optimizer.lock().unwrap_or_else(PoisonError::into_inner);
    optimizer.step()?;
    optimizer.zero_grad(true)
}

impl Optimizer for InBackward {
    /// Backward has done it.
    fn step(&mut self) -> Result<()> {
        Ok(())
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        self.with_optimizer(index, |optimizer| optimizer.state(0))?
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        self.with_optimizer(index, |optimizer| optimizer.make_state(0, steps)).unwrap_or(Ok(None))
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn zero_grad_name(&self) -> &'static str {
        self.zero_grad_name
    }

    /// Each gradient is freed where its step is taken.
    fn zero_grad(&self, _set_to_none: bool) -> Result<()> {
        Ok(())
    }
}
