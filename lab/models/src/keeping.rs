//! A layer whose results are kept on purpose.

use memcore::Tensor;
use memcore::nn::{Init, ListSlot, Module};

/// Appends each result of the inner layer, with its history, to a list of the script, as the second article's programs do.
pub(super) struct Keeping<M> {
    inner: M,
    list: ListSlot,
}

impl<M: Module> Keeping<M> {
    /// Wraps `inner`; the list is one of the model's.
    pub(crate) fn new(init: &Init, inner: M) -> Self {
        Self { inner, list: init.list() }
    }
}

impl<M: Module> Module for Keeping<M> {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let y = self.inner.forward(x)?;
        self.list.push(y.clone());
        Ok(y)
    }
}
