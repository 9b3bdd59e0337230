//! The negative log-likelihood of classes that count differently, computed on the host.

use crate::array::Array;
use crate::backend::kernel::Reduction;
use crate::error::{Error, Result};
use crate::ops::on_host;

/// A loss of classes with a weight for each.
pub(in crate::ops) struct Weighted<'a> {
    classes: usize,
    /// Elements after the dimension of the classes.
    inner: usize,
    ignored: i64,
    weight: &'a Array,
    log_probs: &'a Array,
    target: &'a Array,
}

impl<'a> Weighted<'a> {
    /// `inner` elements follow the dimension of the classes.
    pub(in crate::ops) fn new(
        [classes, inner]: [usize; 2],
        ignored: i64,
        weight: &'a Array,
        log_probs: &'a Array,
        target: &'a Array,
    ) -> Result<Self> {
        if weight.dims() != [classes] || weight.dtype() != log_probs.dtype() {
            let problem = format!("{:?} weights of {} for {classes} classes", weight.dims(), weight.dtype());
            return Err(Error::shape("nll_loss", problem));
        }
        Ok(Self { classes, inner, ignored, weight, log_probs, target })
    }

    /// Where the log-probability of target number `i` is, and how much it counts; `None` if it is ignored.
    fn chosen(&self, weights: &[f64], target: f64, i: usize) -> Option<(usize, f64)> {
        let class = usize::try_from(target as i64).ok().filter(|_| target as i64 != self.ignored)?;
        let (n, at) = (i / self.inner, i % self.inner);
        Some(((n * self.classes + class) * self.inner + at, *weights.get(class)?))
    }

    /// Fills in the loss and the sum of the weights.
    pub(in crate::ops) fn loss(&self, reduction: Reduction, out: &Array, total_weight: &Array) -> Result<()> {
        let chosen = |weights: &[f64], targets: &[f64]| -> Vec<Option<(usize, f64)>> {
            targets.iter().enumerate().map(|(i, &target)| self.chosen(weights, target, i)).collect()
        };
        on_host::fill(total_weight, &[self.weight, self.target], |values| {
            Ok(vec![chosen(&values[0], &values[1]).into_iter().flatten().map(|(_, weight)| weight).sum()])
        })?;
        on_host::fill(out, &[self.weight, self.target, self.log_probs], |values| {
            let of = |found: &Option<(usize, f64)>| found.map_or(0.0, |(at, weight)| -weight * values[2][at]);
            let found = chosen(&values[0], &values[1]);
            let total: f64 = found.iter().flatten().map(|(_, weight)| weight).sum();
            let losses = found.iter().map(of);
            Ok(match reduction {
                Reduction::None => losses.collect(),
                Reduction::Sum => vec![losses.sum()],
                Reduction::Mean => vec![losses.sum::<f64>() / total],
            })
        })
    }

    /// Fills in the gradient of the log-probabilities.
    pub(in crate::ops) fn slope(
        &self,
        reduction: Reduction,
        grad: &Array,
        total_weight: &Array,
        out: &Array,
    ) -> Result<()> {
        on_host::fill(out, &[self.weight, self.target, grad, total_weight], |values| {
            let mut slopes = vec![0.0; out.numel()];
            for (i, &target) in values[1].iter().enumerate() {
                let Some((at, weight)) = self.chosen(&values[0], target, i) else { continue };
                slopes[at] = match reduction {
                    Reduction::None => -weight * values[2][i],
                    Reduction::Sum => -weight * values[2][0],
                    Reduction::Mean => -weight * values[2][0] / values[3][0],
                };
            }
            Ok(slopes)
        })
    }
}
