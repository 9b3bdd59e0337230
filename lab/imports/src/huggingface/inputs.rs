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
    /// `position_ids`, i64 `[batch, sequence]`, if they are passed: each text of an example begins at 0.
    pub positions: Option<Tensor>,
}

/// What a batch says of its tokens.
#[derive(Clone, Copy, Default)]
pub(super) struct Said<'a> {
    /// `attention_mask`
    pub(super) attention_mask: Option<&'a Tensor>,
    /// `position_ids`
    pub(super) positions: Option<&'a Tensor>,
}

impl Inputs {
    /// What is said of the tokens.
    pub(super) fn said(&self) -> Said<'_> {
        Said { attention_mask: self.attention_mask.as_ref(), positions: self.positions.as_ref() }
    }

    /// Returns the labels of this number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer.
    pub(super) fn label(&self, number: usize) -> Result<&Tensor> {
        self.labels.get(number).ok_or_else(|| Error::invalid("labels", "are missing"))
    }
}
