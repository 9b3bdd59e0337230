//! Inputs of a network.

use memcore::{Error, Result, Tensor};

/// One batch on the device.
#[derive(Clone)]
pub struct Inputs {
    /// Token indices `[batch, sequence]`, or pixels `[batch, channels, height, width]`.
    pub input: Tensor,
    /// `attention_mask`, i64 `[batch, sequence]`, if one is passed.
    pub attention_mask: Option<Tensor>,
    /// Labels of the loss: class indices `[batch, sequence]` of tokens or `[batch]` of examples, values, two positions `[batch]` each, or nothing if
    /// the network has no loss.
    pub labels: Vec<Tensor>,
    /// `num_items_in_batch`: the number of labels of all micro-batches of a step, a scalar that divides the sum of the losses; `None` for their mean.
    /// Only losses of the scores of all tokens, and of images, use it.
    pub items: Option<Tensor>,
}

impl Inputs {
    /// Returns the labels of this number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer.
    pub(super) fn label(&self, number: usize) -> Result<&Tensor> {
        self.labels.get(number).ok_or_else(|| Error::invalid("labels", "are missing"))
    }
}
