//! Cache of keys and values that a decoder fills, used or not: `DynamicCache`.

use std::sync::{Arc, Mutex, PoisonError};

use memcore::{Array, DType, Result, Tensor, ops};

use super::options::Options;

/// One layer's part of the cache.
#[derive(Clone)]
pub struct LayerCache {
    /// `[batch, heads, time, head]`
    pub keys: Tensor,
    /// `[batch, heads, time, head]`
    pub values: Tensor,
    /// Length of the window, a scalar i64, for a layer with one. (Such a layer keeps the last keys and values as views: all of their memory.)
    pub window: Option<Array>,
}

/// Keys and values of each layer so far. With `use_cache` (the default) a forward pass fills the cache even in training, and the result holds it.
#[derive(Default)]
pub(super) struct DynamicCache {
    layers: Mutex<Vec<LayerCache>>,
    /// True if keys and values are held without a copy.
    as_is: bool,
    /// True if values are converted to the keys' type.
    widens_values: bool,
}

impl DynamicCache {
    /// Adds a layer's keys and values, `[batch, heads, time, head]`, and returns all of them. They are concatenated with the earlier ones, which
    /// copies them even if there are none. Until release 5.23 the empty tensor for values has the keys' type, which widens values of a narrower type
    /// (autocast computes values in 16 bits, and rotates keys in 32).
    pub(super) fn update(&self, keys: Tensor, values: Tensor, window: Option<usize>) -> Result<(Tensor, Tensor)> {
        if self.as_is {
            self.push(LayerCache { keys: keys.clone(), values: values.clone(), window: None });
            return Ok((keys, values));
        }
        let window = match window {
            Some(length) => Some(Array::full(keys.device(), &[], DType::I64, length as f64)?),
            None => None,
        };
        let nothing = |dtype: DType| {
            let dims: Vec<usize> = keys.dims().iter().enumerate().map(|(i, &n)| if i == 2 { 0 } else { n }).collect();
            Array::empty(keys.device(), &dims, dtype).map(Tensor::from_array)
        };
        let of_values = if self.widens_values { keys.dtype() } else { values.dtype() };
        let (no_keys, no_values) = (nothing(keys.dtype())?, nothing(of_values)?);
        let all_keys = ops::cat(&[&no_keys, &keys], 2)?;
        let all_values = ops::cat(&[&no_values, &values], 2)?;
        drop(keys);
        drop(values);
        self.push(LayerCache { keys: all_keys.clone(), values: all_values.clone(), window });
        Ok((all_keys, all_values))
    }

    fn push(&self, layer: LayerCache) {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).push(layer);
    }

    /// Returns an empty cache if one is wanted: the configuration says so, and blocks are not computed again.
    pub(super) fn wanted(use_cache: bool, options: &Options) -> Option<Arc<Self>> {
        let rules = options.rules();
        let (as_is, widens_values) = (rules.caches_as_is, rules.widens_values);
        let cache = || Arc::new(Self { as_is, widens_values, ..Self::default() });
        options.caches(use_cache).then(cache)
    }

    /// Returns the contents, the last layer first: the order in which Python frees a list.
    pub(super) fn take(&self) -> Vec<LayerCache> {
        let mut layers = std::mem::take(&mut *self.layers.lock().unwrap_or_else(PoisonError::into_inner));
        layers.reverse();
        layers
    }
}
