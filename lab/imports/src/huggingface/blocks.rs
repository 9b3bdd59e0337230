//! Runs a network's blocks, checkpointed or not.

use std::sync::Arc;

use memcore::autograd::checkpoint;
use memcore::{Result, Tensor};

use super::cache::DynamicCache;
use super::rotary::Angles;

/// Inputs of every block of one forward pass besides the hidden states.
#[derive(Clone, Default)]
pub(super) struct BlockInputs {
    /// Positions: blocks do not use them, but a checkpointed block keeps all its inputs.
    pub(super) _positions: Option<Tensor>,
    /// Mask, added to the scores or true where a key is seen; `None` where the kernel's own causal form suffices.
    pub(super) mask: Option<Tensor>,
    /// Mask for blocks with a window.
    pub(super) window_mask: Option<Tensor>,
    /// Number of tokens that a position sees in this block, if not all before it.
    pub(super) window: Option<usize>,
    /// Cache that receives keys and values.
    pub(super) cache: Option<Arc<DynamicCache>>,
    /// Sines and cosines of the positions, `[batch or 1, time, rotated]`.
    pub(super) rotary: Option<Angles>,
}

impl BlockInputs {
    /// Returns the inputs of a block with this window, or without one.
    fn for_window(&self, window: Option<usize>) -> Self {
        let mask = if window.is_some() { &self.window_mask } else { &self.mask };
        Self { mask: mask.clone(), window_mask: None, window, ..self.clone() }
    }

    /// Adds keys and values to the cache and returns all of them, if a cache is filled.
    pub(super) fn cached(&self, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor)> {
        match &self.cache {
            Some(cache) => cache.update(keys, values, self.window),
            None => Ok((keys, values)),
        }
    }
}

/// One of a network's repeated blocks.
pub(super) trait Block: Send + Sync + 'static {
    fn forward(&self, hidden: &Tensor, context: &BlockInputs) -> Result<Tensor>;

    /// Returns the number of tokens that a position sees, itself included; `None` for all before it.
    fn window(&self) -> Option<usize> {
        None
    }
}

/// Makes `count` blocks, in order.
pub(super) fn stack<B: Block>(count: usize, new: impl Fn(usize) -> Result<B>) -> Result<Vec<Arc<dyn Block>>> {
    (0..count).map(|i| Ok(Arc::new(new(i)?) as Arc<dyn Block>)).collect()
}

/// Returns the hidden states after a block. If `checkpointed`, the block keeps its input and is recomputed for its gradient
/// (`gradient_checkpointing_enable`, `use_reentrant=False`).
pub(super) fn through(
    block: &Arc<dyn Block>,
    hidden: Tensor,
    context: &BlockInputs,
    checkpointed: bool,
) -> Result<Tensor> {
    let context = context.for_window(block.window());
    if !checkpointed {
        return block.forward(&hidden, &context);
    }
    let block = block.clone();
    checkpoint(&[hidden], move |inputs| block.forward(&inputs[0], &context))
}
