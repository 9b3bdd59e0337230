//! Modules in a row, and the small ones without parameters.

use super::Module;
use super::init::{Init, Training};
use crate::autograd::Tensor;
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// Each module's result is the next one's input; an intermediate result is let go as soon as the next exists.
#[derive(Default)]
pub struct Sequential {
    modules: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// An empty chain: the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module at the end.
    pub fn push(&mut self, module: impl Module + 'static) {
        self.modules.push(Box::new(module));
    }

    /// The modules, in order.
    pub fn modules(&self) -> &[Box<dyn Module>] {
        &self.modules
    }
}

impl Module for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for module in &self.modules {
            x = module.forward(&x)?;
        }
        Ok(x)
    }
}

/// An activation function as a module.
pub struct Activation {
    scope: ScopeId,
    function: fn(&Tensor) -> Result<Tensor>,
}

impl Activation {
    /// Of a function of one tensor, such as [`ops::relu`].
    pub fn new(init: &Init, function: fn(&Tensor) -> Result<Tensor>) -> Self {
        Self { scope: init.scope(), function }
    }
}

impl Module for Activation {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        (self.function)(x)
    }
}

/// All dimensions from the second on become one.
pub struct Flatten;

impl Module for Flatten {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::flatten(x, 1)
    }
}

/// Zeroes elements with probability `p` while training.
pub struct Dropout {
    scope: ScopeId,
    p: f64,
    training: Training,
}

impl Dropout {
    /// With this probability.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) outside 0..=1.
    pub fn new(init: &Init, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(crate::Error::invalid("dropout", format!("probability {p} is outside 0..=1")));
        }
        Ok(Self { scope: init.scope(), p, training: init.training() })
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::dropout(x, self.p, self.training.is_on())
    }
}
