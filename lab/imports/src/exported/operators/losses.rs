//! Losses, with their reductions.

use memcore::ops::{self, Reduction};
use memcore::{Result, Tensor};

use super::super::call::Call;
use super::super::value::Made;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("cross_entropy_loss.default", cross_entropy),
    ("nll_loss.default", nll_loss),
    ("nll_loss_nd.default", nll_loss),
    ("mse_loss.default", |c| of_two(c, ops::mse_loss)),
    ("l1_loss.default", |c| of_two(c, ops::l1_loss)),
    ("smooth_l1_loss.default", |c| {
        let beta = c.float_or("beta", 1.0)?;
        of_two(c, |x, target, reduction| ops::smooth_l1_loss(x, target, reduction, beta))
    }),
    ("huber_loss.default", |c| {
        let delta = c.float_or("delta", 1.0)?;
        of_two(c, |x, target, reduction| ops::huber_loss(x, target, reduction, delta))
    }),
    ("binary_cross_entropy.default", |c| {
        without(c, &["weight"])?;
        of_two(c, ops::binary_cross_entropy)
    }),
    ("binary_cross_entropy_with_logits.default", |c| {
        without(c, &["weight", "pos_weight"])?;
        of_two(c, ops::binary_cross_entropy_with_logits)
    }),
    ("kl_div.default", |c| {
        let log_target = c.flag("log_target", false)?;
        of_two(c, |x, target, reduction| ops::kl_div(x, target, reduction, log_target))
    }),
    ("cosine_similarity.default", |c| {
        let (a, b, eps) = (c.tensor("x1")?, c.tensor("x2")?, c.float_or("eps", 1e-8)?);
        Ok(Made::tensor(ops::cosine_similarity(a, b, c.axis("dim", 1, a)?, eps)?))
    }),
];

fn of_two(c: &Call<'_>, loss: impl FnOnce(&Tensor, &Tensor, Reduction) -> Result<Tensor>) -> Result<Made> {
    Ok(Made::tensor(loss(c.tensor("self")?, c.tensor("target")?, reduction(c)?)?))
}

/// Returns the reduction by PyTorch's number for it.
fn reduction(c: &Call<'_>) -> Result<Reduction> {
    match c.int_or("reduction", 1)? {
        0 => Ok(Reduction::None),
        1 => Ok(Reduction::Mean),
        2 => Ok(Reduction::Sum),
        other => Err(c.error(format!("reduction {other}"))),
    }
}

fn without(c: &Call<'_>, names: &[&str]) -> Result<()> {
    match names.iter().find(|name| c.arg(name).is_some()) {
        Some(name) => Err(c.error(format!("{name} is not represented"))),
        None => Ok(()),
    }
}

/// Refuses an `ignore_index` that is a class. Targets are drawn from the classes, so a negative `ignore_index` never occurs and has no effect.
fn ignored(c: &Call<'_>) -> Result<()> {
    match c.int_or("ignore_index", ops::IGNORE_INDEX)? {
        class if class >= 0 => {
            Err(c.error(format!("ignore_index={class}, a class that may occur, is not represented")))
        }
        _ => Ok(()),
    }
}

fn cross_entropy(c: &Call<'_>) -> Result<Made> {
    without(c, &["weight"])?;
    ignored(c)?;
    let smoothing = c.float_or("label_smoothing", 0.0)?;
    of_two(c, |x, target, reduction| ops::cross_entropy_smooth(x, target, reduction, smoothing))
}

fn nll_loss(c: &Call<'_>) -> Result<Made> {
    without(c, &["weight"])?;
    ignored(c)?;
    of_two(c, ops::nll_loss)
}
