//! Liger's fused linear cross entropy: the loss of a decoder's last hidden states, whose gradients are computed in forward, a part of the tokens at a time.

use lab_training::shifted_labels;
use memcore::autograd::{Function, Grads, Needs, Saved, record};
use memcore::backend::kernel::ReduceOp;
use memcore::{Array, DType, Device, Error, Result, Tensor, ops};
use smallvec::smallvec;

/// Computes `LigerForCausalLMLoss(hidden, weight, labels, hidden_size)` of hidden states `[batch, time, width]`, the output layer's `weight`
/// `[classes, width]` and labels `[batch, time]`.
///
/// Its memory is that of liger-kernel 0.8.5 (`fused_linear_cross_entropy_forward`). It computes no values.
///
/// # Errors
/// [`Error::Invalid`] on a device with values; those of the device.
pub(super) fn loss(hidden: &Tensor, weight: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if hidden.device().computes() {
        return Err(Error::invalid("loss", "no backend has Liger's kernels: --backend meta predicts their memory"));
    }
    let [padded, shifted] = shifted_labels(labels)?;
    let width = hidden.dims().last().copied().unwrap_or(1);
    let rows = hidden.numel() / width.max(1);
    let flat = ops::view(hidden, &[rows, width])?;
    // The library saves its gradients detached, and a tensor that was detached holds another one: no other gradient is added to it in place. The gradient
    // of a view is such a tensor, too.
    let weight = &ops::view(weight, weight.dims())?;
    let Gradients { loss, of_hidden, of_weight } = Gradients::new(flat.array(), weight)?;
    let loss = record(loss, &[&flat, weight], |saved| {
        saved.save("grad_input", &of_hidden)?;
        if let Some(of_weight) = &of_weight {
            saved.save("grad_weight", of_weight)?;
        }
        Ok(Box::new(FusedLinearCrossEntropy { trains_weight: of_weight.is_some() }))
    })?;
    // Freed in the order of the library's variables.
    drop((padded, flat, shifted));
    Ok(loss)
}

/// The loss and its gradients.
struct Gradients {
    loss: Array,
    of_hidden: Array,
    of_weight: Option<Array>,
}

impl Gradients {
    fn new(hidden: &Array, weight: &Tensor) -> Result<Self> {
        let (device, dtype) = (hidden.device(), hidden.dtype());
        let [rows, classes] = [hidden.dims()[0], weight.dims()[0]];
        let zeros = |dims: &[usize], dtype: DType| Array::zeros(device, dims, dtype);
        let of_hidden = zeros(hidden.dims(), dtype)?;
        let of_weight = weight.requires_grad().then(|| zeros(weight.dims(), dtype)).transpose()?;
        let losses = zeros(&[rows], DType::F32)?;
        let counted = Array::empty(device, &[rows], DType::Bool)?;
        count(device, rows)?;
        let part = part_of(rows, classes, hidden.dims()[1]);
        let scores = Array::empty(device, &[part, classes], dtype)?;
        for _ in (0..rows).step_by(part) {
            // 16-bit gradients are summed in place.
            if of_weight.is_some() && dtype == DType::F32 {
                drop(Array::empty(device, weight.dims(), DType::F32)?);
            }
        }
        drop(scores);
        let loss = losses.reduce(ReduceOp::Sum, &[], false)?;
        drop((losses, counted));
        Ok(Self { loss, of_hidden, of_weight })
    }
}

/// Sums the labels that count: a number, and the labels as integers meanwhile.
fn count(device: &Device, rows: usize) -> Result<()> {
    let count = Array::empty(device, &[], DType::I64)?;
    drop(Array::empty(device, &[rows], DType::I64)?);
    drop(count);
    Ok(())
}

/// Tokens at a time: as many as have no more scores than all hidden states have elements, rounded up to a power of two.
fn part_of(rows: usize, classes: usize, width: usize) -> usize {
    let parts = classes.div_ceil(width.max(1)).max(1);
    rows.div_ceil(parts).next_power_of_two().min(rows).max(1)
}

struct FusedLinearCrossEntropy {
    trains_weight: bool,
}

impl Function for FusedLinearCrossEntropy {
    fn name(&self) -> &'static str {
        "LigerFusedLinearCrossEntropyFunctionBackward"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let of_hidden = saved.get(0)?;
        let of_weight = self.trains_weight.then(|| saved.get(1)).transpose()?;
        // `torch.equal(grad_output, torch.tensor(1.0))` decides whether the gradients are scaled, which takes nothing.
        let device = of_hidden.device();
        let one = Array::empty(device, &[], DType::F32)?;
        let equal = Array::empty(device, &[], DType::Bool)?;
        let all = Array::empty(device, &[], DType::Bool)?;
        drop((equal, all, one));
        drop(grads);
        saved.done();
        Ok(smallvec![Some(of_hidden), of_weight])
    }
}

#[cfg(test)]
mod tests {
    use super::part_of;

    #[test]
    fn parts_are_those_of_the_library() {
        assert_eq!(part_of(4096 * 4, 32000, 4096), 2048);
        assert_eq!(part_of(96, 1024, 256), 32);
        assert_eq!(part_of(3, 10, 100), 3);
    }
}
