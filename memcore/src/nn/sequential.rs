//! Chains of modules, and small modules without parameters.

use std::sync::Arc;

use super::init::Init;
use super::parameter::Parameter;
use super::slots::{Training, VariableSlot};
use super::{Module, parameters_of};
use crate::autograd::{Tensor, checkpoint};
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// A chain of modules. Each module's result is the next one's input; an intermediate result is freed as soon as the
/// next exists.
#[derive(Default)]
pub struct Sequential {
    modules: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// Creates an empty chain: the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a chain of these modules, in this order.
    pub fn from_modules(modules: Vec<Box<dyn Module>>) -> Self {
        Self { modules }
    }

    /// Adds a module at the end.
    pub fn push(&mut self, module: impl Module + 'static) {
        self.modules.push(Box::new(module));
    }

    /// Adds another chain's modules at the end.
    pub fn append(&mut self, mut other: Self) {
        self.modules.append(&mut other.modules);
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

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters_of(self.modules.iter().map(|module| &**module))
    }
}

/// A module whose inside is recomputed in backward instead of being kept: activation checkpointing.
pub struct Checkpoint {
    inner: Arc<dyn Module>,
}

impl Checkpoint {
    /// Checkpoints `inner`.
    pub fn new(inner: impl Module + 'static) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl Module for Checkpoint {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = self.inner.clone();
        checkpoint(std::slice::from_ref(x), move |inputs| inner.forward(&inputs[0]))
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        self.inner.parameters()
    }
}

/// A variable of the training script: it keeps the result of its inner module until the next forward pass begins or the
/// script ends.
#[doc(hidden)]
pub struct Variable {
    inner: Box<dyn Module>,
    value: VariableSlot,
}

impl Variable {
    /// Keeps the result of `inner` in a variable of the model.
    pub fn new(init: &Init, inner: impl Module + 'static) -> Self {
        Self { inner: Box::new(inner), value: init.variable() }
    }
}

impl Module for Variable {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.value.set(None);
        let y = self.inner.forward(x)?;
        self.value.set(Some(y.clone()));
        Ok(y)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        self.inner.parameters()
    }
}

/// An activation function as a module.
pub struct Activation {
    scope: ScopeId,
    function: fn(&Tensor) -> Result<Tensor>,
}

impl Activation {
    /// Wraps a function of one tensor, such as [`ops::relu`].
    pub fn new(init: &Init, function: fn(&Tensor) -> Result<Tensor>) -> Self {
        Self { scope: init.scope(), function }
    }
}

impl Module for Activation {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        (self.function)(x)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(Vec::new())
    }
}

/// Flattens all dimensions from the second on into one.
pub struct Flatten;

impl Module for Flatten {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::flatten(x, 1)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(Vec::new())
    }
}

/// Zeroes elements with probability `p` while training.
pub struct Dropout {
    scope: ScopeId,
    p: f64,
    training: Training,
}

impl Dropout {
    /// Creates the layer with this probability.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) outside 0..=1.
    pub fn new(init: &Init, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(crate::Error::invalid("dropout", format!("probability {p} is outside 0..=1")));
        }
        Ok(Self { scope: init.scope(), p, training: init.training() })
    }

    /// The probability in force: 0 while the model evaluates.
    pub fn probability(&self) -> f64 {
        if self.training.is_on() { self.p } else { 0.0 }
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::dropout(x, self.p, self.training.is_on())
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(Vec::new())
    }
}
