//! The loop over a network's blocks, checkpointed or not.

use std::sync::Arc;

use memcore::autograd::checkpoint;
use memcore::{Result, Tensor};

use super::cache::DynamicCache;

/// What every block of one forward pass is given besides the hidden states.
#[derive(Clone, Default)]
pub(super) struct Context {
    /// The mask to add to the scores, or of what is seen; none where the kernel's own causal form does.
    pub(super) mask: Option<Tensor>,
    /// Tokens that a position sees, where not all before it.
    pub(super) window: Option<usize>,
    /// Where keys and values go.
    pub(super) cache: Option<Arc<DynamicCache>>,
    /// Cosines and sines of the positions' angles, `[batch or 1, time, rotated]`.
    pub(super) rotary: Option<(Tensor, Tensor)>,
    /// The positions: blocks do not use them, but a checkpointed block keeps all that it is given.
    pub(super) _positions: Option<Tensor>,
}

impl Context {
    /// Keys and values with those that are cached, where a cache is filled.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn cached(&self, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor)> {
        match &self.cache {
            Some(cache) => cache.update(keys, values, self.window),
            None => Ok((keys, values)),
        }
    }
}

/// One of a network's repeated blocks.
pub(super) trait Block: Send + Sync + 'static {
    /// # Errors
    /// Shapes that do not fit; those of the device.
    fn forward(&self, hidden: &Tensor, context: &Context) -> Result<Tensor>;
}

/// `count` blocks, made in their order.
///
/// # Errors
/// Those of the device.
pub(super) fn stack<B>(count: usize, new: impl Fn(usize) -> Result<B>) -> Result<Vec<Arc<B>>> {
    (0..count).map(|i| new(i).map(Arc::new)).collect()
}

/// The hidden states after all blocks. With `checkpointed` each block keeps its input and computes itself again for its gradient
/// (`gradient_checkpointing_enable`, `use_reentrant=False`).
///
/// # Errors
/// Those of the blocks.
pub(super) fn through<B: Block>(
    blocks: &[Arc<B>],
    hidden: Tensor,
    context: &Context,
    checkpointed: bool,
) -> Result<Tensor> {
    through_each(blocks, hidden, |_| context, checkpointed)
}

/// As [`through`], where blocks are given different things.
///
/// # Errors
/// Those of the blocks.
pub(super) fn through_each<'a, B: Block>(
    blocks: &[Arc<B>],
    mut hidden: Tensor,
    context: impl Fn(usize) -> &'a Context,
    checkpointed: bool,
) -> Result<Tensor> {
    for (i, block) in blocks.iter().enumerate() {
        let context = context(i);
        hidden = if checkpointed {
            let (block, context) = (block.clone(), context.clone());
            checkpoint(&[hidden.clone()], move |inputs| block.forward(&inputs[0], &context))?
        } else {
            block.forward(&hidden, context)?
        };
    }
    Ok(hidden)
}
