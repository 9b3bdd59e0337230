//! What a network is given.

use memcore::{Error, Result, Tensor};

/// One batch on the device.
#[derive(Clone)]
pub struct Inputs {
    /// Token indices `[batch, sequence]`, or pixels `[batch, channels, height, width]`.
    pub input: Tensor,
    /// `attention_mask`, i64 `[batch, sequence]`, where one is passed.
    pub attention_mask: Option<Tensor>,
    /// What the loss compares with: class indices `[batch, sequence]` of tokens or `[batch]` of examples, values, two positions `[batch]` each, or
    /// nothing where the network has no loss.
    pub labels: Vec<Tensor>,
    /// `num_items_in_batch`: labels of all micro-batches of a step, a scalar that the sum of the losses is divided by; `None` for their mean.
    /// Only losses of the scores of all tokens, and of pictures, look at it.
    pub items: Option<Tensor>,
}

impl Inputs {
    /// The labels of this number.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there are fewer.
    pub(super) fn label(&self, number: usize) -> Result<&Tensor> {
        self.labels.get(number).ok_or_else(|| Error::invalid("labels", "are missing"))
    }
}
