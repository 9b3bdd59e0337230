//! A network's blocks, checkpointed or not.

use std::sync::Arc;

use memcore::autograd::checkpoint;
use memcore::{Result, Tensor};

use super::cache::DynamicCache;
use super::rotary::Angles;

/// What every block of one forward pass is given besides the hidden states.
#[derive(Clone, Default)]
pub(super) struct BlockInputs {
    /// The positions: blocks do not use them, but a checkpointed block keeps all that it is given.
    pub(super) _positions: Option<Tensor>,
    /// The mask to add to the scores, or of what is seen; none where the kernel's own causal form does.
    pub(super) mask: Option<Tensor>,
    /// The same for blocks with a window.
    pub(super) window_mask: Option<Tensor>,
    /// Tokens that a position sees in this block, where not all before it.
    pub(super) window: Option<usize>,
    /// Where keys and values go.
    pub(super) cache: Option<Arc<DynamicCache>>,
    /// Of the positions, `[batch or 1, time, rotated]`.
    pub(super) rotary: Option<Angles>,
}

impl BlockInputs {
    /// What a block with this window, or without one, is given.
    fn for_window(&self, window: Option<usize>) -> Self {
        let mask = if window.is_some() { &self.window_mask } else { &self.mask };
        Self { mask: mask.clone(), window_mask: None, window, ..self.clone() }
    }

    /// Keys and values with those that are cached, where a cache is filled.
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

    /// Tokens that a position sees, itself included; `None`: all before it.
    fn window(&self) -> Option<usize> {
        None
    }
}

/// `count` blocks, made in their order.
pub(super) fn stack<B: Block>(count: usize, new: impl Fn(usize) -> Result<B>) -> Result<Vec<Arc<dyn Block>>> {
    (0..count).map(|i| Ok(Arc::new(new(i)?) as Arc<dyn Block>)).collect()
}

/// The hidden states after a block. `checkpointed`, it keeps its input and computes itself again for its gradient
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
