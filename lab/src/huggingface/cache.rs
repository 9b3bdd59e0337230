//! The cache of keys and values that a decoder fills, used or not: `DynamicCache`.

use std::sync::{Arc, Mutex, PoisonError};

use memcore::{Result, Tensor, ops};

use super::Options;

/// Keys and values of each layer so far. With `use_cache` (the default) a forward pass fills it even in training, and the result holds it.
#[derive(Default)]
pub(super) struct DynamicCache {
    layers: Mutex<Vec<(Tensor, Tensor)>>,
}

impl DynamicCache {
    /// Adds a layer's keys and values, `[batch, heads, time, head]`, and returns all of them. They are concatenated with what was there, which
    /// copies them also when that is nothing.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn update(&self, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor)> {
        let all = (ops::cat(&[&keys], 2)?, ops::cat(&[&values], 2)?);
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).push(all.clone());
        Ok(all)
    }

    /// An empty one, where the configuration wants one and blocks are not computed twice.
    pub(super) fn wanted(use_cache: bool, options: &Options) -> Option<Arc<Self>> {
        (use_cache && !options.checkpoint).then(Arc::default)
    }

    /// What it holds.
    pub(super) fn take(&self) -> Vec<(Tensor, Tensor)> {
        std::mem::take(&mut *self.layers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
