//! The loss of a decoder's last hidden states without the scores of all tokens: output layer and cross entropy are computed again in backward.

use lab_training::{next_labels, next_token};
use memcore::autograd::{KeptOps, checkpoint};
use memcore::backend::kernel::Reduction;
use memcore::{DType, Error, Result, Tensor, ops};

/// Computes the loss of hidden states `[batch, time, width]` against labels `[batch, time]`: at once, or in `chunks` parts of the tokens. `scores` is
/// the output layer.
///
/// ```python
/// checkpoint(lambda h, y: model.loss_function(model.lm_head(h), y, vocab_size), hidden, labels, use_reentrant=False)
/// sum(checkpoint(lambda h, y: F.cross_entropy(model.lm_head(h).float(), y, reduction="sum"), h, y, use_reentrant=False)
///     for h, y in zip(hidden.view(-1, width).chunk(chunks), labels.chunk(chunks))) / count
/// ```
pub(super) fn loss(
    scores: impl Fn(&Tensor) -> Result<Tensor> + Clone + Send + Sync + 'static,
    hidden: Tensor,
    labels: &Tensor,
    classes: usize,
    chunks: Option<usize>,
) -> Result<Tensor> {
    // Their blocks alone keep results of operators.
    let _all = KeptOps::default().enter();
    let Some(chunks) = chunks else {
        return checkpoint(&[hidden, labels.clone()], move |inputs| {
            next_token(scores(&inputs[0])?, &inputs[1], classes, None)
        });
    };
    let next = next_labels(labels)?;
    let width = hidden.dims().last().copied().unwrap_or(1);
    let hidden = ops::view(&hidden, &[next.numel(), width])?;
    let mut total: Option<Tensor> = None;
    // The loop's variable: each part's loss lives until the next one exists.
    let mut held: Option<Tensor> = None;
    for (part, targets) in ops::chunk(&hidden, chunks, 0)?.into_iter().zip(ops::chunk(&next, chunks, 0)?) {
        let scores = scores.clone();
        let loss = checkpoint(&[part, targets], move |inputs| {
            let wide = {
                let scores = scores(&inputs[0])?;
                ops::cast(&scores, DType::F32)?
            };
            ops::cross_entropy(&wide, &inputs[1], Reduction::Sum)
        })?;
        total = Some(match total {
            Some(total) => {
                drop(held.replace(loss.clone()));
                ops::add(&total, &loss)?
            }
            None => held.insert(loss).clone(),
        });
    }
    let total = total.ok_or_else(|| Error::invalid("loss", "is of no tokens"))?;
    let mean = ops::div_scalar(&total, counted(&next)? as f64);
    drop(held);
    mean
}

/// Number of labels that count.
fn counted(next: &Tensor) -> Result<usize> {
    if !next.device().computes() {
        return Ok(next.numel().max(1));
    }
    Ok(next.to_vec::<i64>()?.iter().filter(|label| **label != ops::IGNORE_INDEX).count())
}
