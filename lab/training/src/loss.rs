//! Losses: comparing a result with its targets.

use lab_models::Loss;
use memcore::backend::kernel::Reduction;
use memcore::{Array, DType, Result, Tensor, ops};

/// Returns the loss of a result against its targets, averaged.
pub fn loss(loss: &Loss, output: &Tensor, target: &Tensor) -> Result<Tensor> {
    loss_per(loss, output, target, None)
}

/// Returns the same loss as [`loss`], or its sum divided by `items`, a scalar on the device: `num_items_in_batch` of the `transformers` library.
pub fn loss_per(loss: &Loss, output: &Tensor, target: &Tensor, items: Option<&Tensor>) -> Result<Tensor> {
    match loss {
        Loss::Inside => Err(memcore::Error::invalid("loss", "the network computes its own")),
        Loss::MeanSquaredError { .. } => ops::mse_loss(output, target, Reduction::Mean),
        Loss::NextToken { classes } => next_token(output.clone(), target, *classes, items),
        Loss::CrossEntropy { classes } | Loss::Reversal { classes } if output.rank() > 2 => {
            flat_cross_entropy(output, target, *classes, items)
        }
        Loss::CrossEntropy { .. } | Loss::Reversal { .. } => cross_entropy(output, target, items),
    }
}

/// `fixed_cross_entropy`: the mean over the targets that count, or their sum divided by `items`.
fn cross_entropy(logits: &Tensor, labels: &Tensor, items: Option<&Tensor>) -> Result<Tensor> {
    match items {
        None => ops::cross_entropy(logits, labels, Reduction::Mean),
        Some(items) => ops::div(&ops::cross_entropy(logits, labels, Reduction::Sum)?, items),
    }
}

/// Cross entropy of `[.., classes]` against `[..]`.
fn flat_cross_entropy(logits: &Tensor, labels: &Tensor, classes: usize, items: Option<&Tensor>) -> Result<Tensor> {
    let rows = logits.numel() / classes.max(1);
    let logits = ops::view(logits, &[rows, classes])?;
    cross_entropy(&logits, &ops::view(labels, &[rows])?, items)
}

/// The `transformers` library's `ForCausalLMLoss`: the labels are padded by one position and shifted, so that the last position has nothing to
/// predict. Logits `[batch, time, classes]` are converted to f32 first, and freed then if nobody else holds them.
pub fn next_token(logits: Tensor, labels: &Tensor, classes: usize, items: Option<&Tensor>) -> Result<Tensor> {
    let logits = {
        let narrow = logits;
        ops::cast(&narrow, DType::F32)?
    };
    let [padded, shifted] = shifted_labels(labels)?;
    let loss = flat_cross_entropy(&logits, &shifted, classes, items)?;
    // Freed in the order of the library's variables.
    drop((logits, padded, shifted));
    Ok(loss)
}

/// Returns the label of the next token for each position of `[batch, time]`, as `[batch · time]`; after the last token it is ignored.
pub fn next_labels(labels: &Tensor) -> Result<Tensor> {
    let [_, shifted] = shifted_labels(labels)?;
    ops::view(&shifted, &[labels.numel()])
}

/// Returns labels `[batch, time]` with one more position, and those of the next token `[batch, time]`.
pub fn shifted_labels(labels: &Tensor) -> Result<[Tensor; 2]> {
    let padded = padded(labels)?;
    let time = padded.dims()[1];
    let shifted = ops::contiguous(&ops::narrow(&padded, 1, 1, time - 1)?)?;
    Ok([padded, shifted])
}

/// Pads labels `[batch, time]` with one more position, which is ignored.
fn padded(labels: &Tensor) -> Result<Tensor> {
    let [batch, time] = *labels.dims() else {
        return Err(memcore::Error::shape("pad", format!("labels {:?}: expected two dimensions", labels.dims())));
    };
    let out = Array::empty(labels.device(), &[batch, time + 1], DType::I64)?;
    if labels.device().computes() {
        let values = labels.to_vec::<i64>()?;
        let row = |i: usize| values[i * time..(i + 1) * time].iter().copied().chain([ops::IGNORE_INDEX]);
        out.write(&(0..batch).flat_map(row).collect::<Vec<i64>>())?;
    }
    Ok(Tensor::from_array(out))
}
