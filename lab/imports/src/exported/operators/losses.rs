//! Losses, with their reductions.

use memcore::ops::{self, Counting, CtcOptions, Reduction};
use memcore::profile::Convolution;
use memcore::{DType, Result, Tensor, context};

use super::super::call::Call;
use super::super::value::Made;
use super::host;
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
    ("pairwise_distance.default", |c| {
        euclidean(c)?;
        let (a, b, eps) = (c.tensor("x1")?, c.tensor("x2")?, c.float_or("eps", 1e-6)?);
        Ok(Made::tensor(ops::pairwise_distance(a, b, eps, c.flag("keepdim", false)?)?))
    }),
    ("margin_ranking_loss.default", |c| {
        let (a, b, target) = (c.tensor("input1")?, c.tensor("input2")?, c.tensor("target")?);
        Ok(Made::tensor(ops::margin_ranking_loss(a, b, target, c.float_or("margin", 0.0)?, reduction(c)?)?))
    }),
    ("triplet_margin_loss.default", |c| {
        euclidean(c)?;
        c.not_set("swap")?;
        let three = [c.tensor("anchor")?, c.tensor("positive")?, c.tensor("negative")?];
        let (margin, eps) = (c.float_or("margin", 1.0)?, c.float_or("eps", 1e-6)?);
        Ok(Made::tensor(ops::triplet_margin_loss(three, margin, eps, reduction(c)?)?))
    }),
    ("hinge_embedding_loss.default", hinge),
    ("poisson_nll_loss.default", poisson),
    ("ctc_loss.Tensor", |c| {
        // The lengths are values: what is known of them is that no target is longer than their width.
        c.ignore(&["input_lengths", "target_lengths"]);
        match *c.tensor("targets")?.dims() {
            [_, longest] => ctc(c, longest),
            _ => Err(c.error(
                "targets one after the other, whose lengths are values, are not supported; [batch, longest] are",
            )),
        }
    }),
    ("ctc_loss.IntList", |c| {
        let (inputs, lengths) = (c.sizes("input_lengths")?, c.sizes("target_lengths")?);
        let batch = c.tensor("log_probs")?.dims().get(1).copied();
        if Some(inputs.len()) != batch || Some(lengths.len()) != batch {
            return Err(c.error(format!("{} and {} lengths, not one for each sequence", inputs.len(), lengths.len())));
        }
        ctc(c, lengths.into_iter().max().unwrap_or_default())
    }),
];

/// CTC whose longest target is of length `longest`. With cuDNN PyTorch may take cuDNN's where the targets are one after the other, as int32.
fn ctc(c: &Call<'_>, longest: usize) -> Result<Made> {
    let (log_probs, targets) = (c.tensor("log_probs")?, c.tensor("targets")?);
    let has_cudnn = matches!(c.device.profile().convolution, Convolution::Cudnn { .. });
    let in_one_row = targets.rank() == 1 && targets.dtype() == DType::I32;
    if has_cudnn && in_one_row && c.int_or("blank", 0)? == 0 {
        return Err(c.error("targets one after the other as int32: cuDNN's CTC is not supported"));
    }
    c.ignore(&["blank"]);
    let options = CtcOptions { longest, zero_infinity: c.flag("zero_infinity", false)?, reduction: reduction(c)? };
    Ok(Made::tensor(ops::ctc_loss(log_probs, targets, options)?))
}

/// `x` where the target is 1, `max(0, margin − x)` where it is −1, reduced. It is composed of several operators, as in PyTorch.
fn hinge(c: &Call<'_>) -> Result<Made> {
    let (x, target, margin) = (c.tensor("self")?, c.tensor("target")?, c.float_or("margin", 1.0)?);
    let _op = context::op("hinge_embedding_loss");
    let zeros = host::made(c.device, "zeros_like", x.dims(), x.dtype(), || Ok(vec![0.0; x.numel()]))?;
    let beyond = ops::clamp(&ops::rsub_scalar(x, margin)?, 0.0, f64::INFINITY)?;
    let is_not = |class: f64| host::map(&target.detach(), "ne", DType::Bool, |v| f64::from(u8::from(v != class)));
    let of_margin = ops::where_(&is_not(1.0)?, &beyond, &zeros)?;
    let of_self = ops::where_(&is_not(-1.0)?, x, &zeros)?;
    reduced(c, ops::add(&of_margin, &of_self)?)
}

/// `exp(x) − target·x` of logarithms of rates, reduced. It is composed of several operators, as in PyTorch.
fn poisson(c: &Call<'_>) -> Result<Made> {
    let (x, target) = (c.tensor("input")?, c.tensor("target")?);
    c.ignore(&["eps"]);
    if !c.flag("log_input", true)? {
        return Err(c.error("of rates is not supported; of their logarithms is"));
    }
    c.not_set("full")?;
    let _op = context::op("poisson_nll_loss");
    let losses = {
        let rates = ops::exp(x)?;
        ops::sub(&rates, &ops::mul(target, x)?)?
    };
    reduced(c, losses)
}

/// Reduces losses as the call says.
fn reduced(c: &Call<'_>, losses: Tensor) -> Result<Made> {
    Ok(Made::tensor(match reduction(c)? {
        Reduction::None => losses,
        Reduction::Sum => ops::sum(&losses)?,
        Reduction::Mean => ops::mean(&losses)?,
    }))
}

/// Refuses distances of another order than 2.
fn euclidean(c: &Call<'_>) -> Result<()> {
    let order = c.float_or("p", 2.0)?;
    if order == 2.0 { Ok(()) } else { Err(c.error(format!("distances of order {order} are not supported"))) }
}

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
        Some(name) => Err(c.error(format!("{name} is not supported"))),
        None => Ok(()),
    }
}

/// Which targets count, and how much.
fn counting<'a>(c: &Call<'a>) -> Result<Counting<'a>> {
    Ok(Counting { ignored: c.int_or("ignore_index", ops::IGNORE_INDEX)?, weight: c.maybe_tensor("weight")? })
}

fn cross_entropy(c: &Call<'_>) -> Result<Made> {
    let (counting, smoothing) = (counting(c)?, c.float_or("label_smoothing", 0.0)?);
    if c.tensor("target")?.dtype().is_float() {
        return Err(c.error("of probabilities of classes is not supported; of classes is"));
    }
    if smoothing == 0.0 {
        return of_two(c, |x, target, reduction| ops::cross_entropy_counting(x, target, reduction, counting));
    }
    if counting.weight.is_some() || counting.ignored >= 0 {
        return Err(c.error("with label smoothing, weight or ignore_index is not supported"));
    }
    of_two(c, |x, target, reduction| ops::cross_entropy_smooth(x, target, reduction, smoothing))
}

fn nll_loss(c: &Call<'_>) -> Result<Made> {
    let counting = counting(c)?;
    of_two(c, |x, target, reduction| ops::nll_loss_counting(x, target, reduction, counting))
}
