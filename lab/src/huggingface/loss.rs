//! Losses as the library computes them, from logits of any type.

use memcore::backend::kernel::Reduction;
use memcore::{Array, DType, Device, Result, Tensor, ops};

/// Next-token cross entropy: the labels are padded by one position and shifted, so that the last position has nothing to predict.
///
/// Logits `[batch, time, vocabulary]` are converted to f32 first.
///
/// # Errors
/// Shapes that do not fit; those of the device.
pub(super) fn causal(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let logits = ops::cast(logits, DType::F32)?;
    let padded = padded(labels)?;
    let time = padded.dims()[1];
    let shifted = ops::contiguous(&ops::narrow(&padded, 1, 1, time - 1)?)?;
    flat_cross_entropy(&logits, &shifted)
}

/// Cross entropy of `[.., classes]` against `[..]`.
///
/// # Errors
/// As [`causal`].
pub(super) fn flat_cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let classes = logits.dims().last().copied().unwrap_or(1);
    let rows = logits.numel() / classes.max(1);
    let logits = ops::view(logits, &[rows, classes])?;
    let labels = ops::view(labels, &[rows])?;
    ops::cross_entropy(&logits, &labels, Reduction::Mean)
}

/// Labels `[batch, time]` with one more position that does not count.
fn padded(labels: &Tensor) -> Result<Tensor> {
    let [batch, time] = *labels.dims() else {
        return Err(memcore::Error::shape("pad", format!("labels {:?}: expected two dimensions", labels.dims())));
    };
    let device: &Device = labels.device();
    let out = Array::empty(device, &[batch, time + 1], DType::I64)?;
    if device.computes() {
        let values = labels.to_vec::<i64>()?;
        let row = |i: usize| values[i * time..(i + 1) * time].iter().copied().chain([ops::IGNORE_INDEX]);
        out.write(&(0..batch).flat_map(row).collect::<Vec<i64>>())?;
    }
    Ok(Tensor::from_array(out))
}
