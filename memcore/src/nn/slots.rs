//! What a script around a model holds: whether it trains, variables that layers set, lists to which they append.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::autograd::Tensor;

/// Whether a model trains or evaluates; shared by all layers that depend on it.
#[derive(Clone, Debug)]
pub struct Training(Arc<AtomicBool>);

impl Training {
    /// The state of a model that was just made.
    pub(super) fn on() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// True while training: dropout drops, and batch norm uses the batch's statistics.
    pub fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Switches to training or evaluation.
    pub fn set(&self, on: bool) {
        self.0.store(on, Relaxed);
    }
}

/// A variable of the script around a model. Clones share it.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct VariableSlot(Arc<Mutex<Option<Tensor>>>);

impl VariableSlot {
    /// Assigns a value and drops the previous one.
    pub fn set(&self, value: Option<Tensor>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), value);
        drop(before);
    }
}

/// A list of the script around a model, to which layers append. Clones share it.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct ListSlot(Arc<Mutex<Vec<Tensor>>>);

impl ListSlot {
    /// Appends a tensor, with its history.
    pub fn push(&self, value: Tensor) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    /// Empties the list from its end, in the order in which Python frees a list.
    pub fn clear(&self) {
        let mut values = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while values.pop().is_some() {}
    }
}
