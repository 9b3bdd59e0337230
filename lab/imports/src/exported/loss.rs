//! The loss that a training minimises: a scalar that the network returns, or a function of its first output.

use lab_base::error::{Error, Result};
use lab_base::named;
use lab_models::Loss;
use memcore::ops::Reduction;
use memcore::{Tensor, ops};

use super::signature::OutputTensor;

/// A loss that is computed outside the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossName {
    /// The sum of the first output's elements.
    Sum,
    /// The mean of the first output's elements.
    Mean,
    /// The cross entropy of the first output against class indices. The output is `[batch, classes]`, `[batch, positions, classes]` with a class
    /// at each position, or `[batch, classes, height, width]` with a class at each pixel.
    CrossEntropy,
    /// The negative log likelihood of the first output, which are logarithms of probabilities, against class indices. The output is `[batch,
    /// classes]`, or has further sizes after the classes, with a class at each place.
    Nll,
    /// The mean squared error of the first output against values of the same sizes.
    Mse,
}

named!(LossName, "loss", {
    Sum = "sum",
    Mean = "mean",
    CrossEntropy = "cross-entropy" | "ce" | "crossentropyloss",
    Nll = "nll" | "nllloss",
    Mse = "mse" | "mseloss",
});

/// The loss that a training minimises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the output that is the loss, or that the loss is computed from.
    pub output: usize,
    /// Name of that output in the graph.
    pub name: String,
    /// Function that computes the loss from the output; `None` if the network computes the loss itself.
    pub kind: Option<LossName>,
    /// Sizes of the output without the batch.
    dims: Vec<usize>,
    /// True if the user chose `kind` (`--loss`).
    pub said: bool,
}

impl Chosen {
    /// Chooses the loss for these outputs; `wanted` is the user's choice.
    ///
    /// # Errors
    /// [`Error::Usage`] if no output can be trained, or if the wanted loss does not fit the output's sizes.
    pub(super) fn choose(outputs: &[OutputTensor], wanted: Option<LossName>, file: &str) -> Result<Self> {
        let floats = outputs.iter().enumerate().filter_map(|(number, output)| {
            let expected = output.expected.as_ref()?;
            expected.dtype.filter(|dtype| dtype.is_float())?;
            Some((number, output, expected))
        });
        let inside = floats.clone().find(|(_, output, expected)| output.is_loss || expected.dims.is_empty());
        if let (Some((number, output, _)), None) = (&inside, wanted) {
            return Ok(Self { output: *number, name: output.name.clone(), kind: None, dims: Vec::new(), said: false });
        }
        if let (Some((_, output, _)), Some(kind)) = (&inside, wanted)
            && floats.clone().all(|(.., expected)| expected.dims.is_empty())
        {
            let problem =
                format!("{kind} has nothing to be computed from: the output {} is the loss itself", output.name);
            return Err(Error::usage("loss", problem));
        }
        let Some((number, output, expected)) = floats.clone().find(|(.., expected)| !expected.dims.is_empty()) else {
            return Err(Error::usage(file, "none of the network's outputs is a float: there is nothing to train"));
        };
        let kind = wanted.unwrap_or(match expected.dims.as_slice() {
            [_, Some(_)] => LossName::CrossEntropy,
            _ => LossName::Mean,
        });
        let rest: Option<Vec<usize>> = expected.dims[1..].iter().copied().collect();
        let dims = match (kind, rest) {
            (LossName::Sum | LossName::Mean, _) => Vec::new(),
            (LossName::CrossEntropy, Some(rest)) if matches!(rest.len(), 1..=3) => rest,
            (LossName::Nll, Some(rest)) if matches!(rest.len(), 1..=3) => rest,
            (LossName::Mse, Some(rest)) => rest,
            (kind, _) => {
                let problem = format!(
                    "{kind} does not fit the output {}, whose sizes are {}",
                    output.name,
                    shown(&expected.dims)
                );
                return Err(Error::usage("loss", problem));
            }
        };
        Ok(Self { output: number, name: output.name.clone(), kind: Some(kind), dims, said: wanted.is_some() })
    }

    /// True if the classes are the second size of the output, as in a picture with a class at each pixel, not the last.
    fn has_classes_first(&self) -> bool {
        self.dims.len() == 3 || self.kind == Some(LossName::Nll)
    }

    /// Returns the loss in the terms of [`lab_models`].
    pub(super) fn task(&self) -> Loss {
        match self.kind {
            Some(LossName::CrossEntropy) if !self.has_classes_first() => Loss::CrossEntropy { classes: self.classes() },
            Some(LossName::Mse) => Loss::MeanSquaredError { dims: self.dims.clone() },
            _ => Loss::Inside,
        }
    }

    /// Returns the number of classes.
    pub(super) fn classes(&self) -> usize {
        let size = if self.has_classes_first() { self.dims.first() } else { self.dims.last() };
        size.copied().unwrap_or(1)
    }

    /// True if the targets are numbers of classes.
    pub(super) fn of_classes(&self) -> bool {
        matches!(self.kind, Some(LossName::CrossEntropy | LossName::Nll))
    }

    /// Returns the sizes of the targets for a batch; `None` if the loss takes no targets.
    pub(super) fn target_dims(&self, batch: usize) -> Option<Vec<usize>> {
        let of = |rest: &[usize]| std::iter::once(batch).chain(rest.iter().copied()).collect();
        match self.kind {
            Some(LossName::CrossEntropy | LossName::Nll) if self.has_classes_first() => {
                Some(of(self.dims.get(1..).unwrap_or_default()))
            }
            Some(LossName::CrossEntropy) => Some(of(&self.dims[..self.dims.len().saturating_sub(1)])),
            Some(LossName::Mse) => Some(of(&self.dims)),
            _ => None,
        }
    }

    /// Computes the loss of an output.
    ///
    /// # Errors
    /// Targets that are missing; those of the device.
    pub(super) fn of_output(&self, output: &Tensor, target: Option<&Tensor>) -> memcore::Result<Tensor> {
        match (self.kind, target) {
            (None, _) => Ok(output.clone()),
            (Some(LossName::Sum), _) => ops::sum(output),
            (Some(LossName::Mean), _) => ops::mean(output),
            (Some(LossName::Nll), Some(target)) => ops::nll_loss(output, target, Reduction::Mean),
            (Some(LossName::CrossEntropy), Some(target)) if self.has_classes_first() => {
                ops::cross_entropy(output, target, Reduction::Mean)
            }
            (Some(_), Some(target)) => lab_training::loss(&self.task(), output, target),
            (Some(_), None) => Err(memcore::Error::invalid("loss", "the targets are missing")),
        }
    }

    /// Names the loss in a sentence, with the origin of the choice.
    pub fn sentence(&self) -> String {
        match (self.kind, self.said) {
            (None, _) => format!("The loss is the network's own output {}.", self.name),
            (Some(kind), true) => format!("The loss is {} of the output {} (--loss).", words(kind), self.name),
            (Some(kind), false) => format!(
                "The network gives no scalar, so the loss is taken to be {} of its output {}; --loss {} says another.",
                words(kind),
                self.name,
                LossName::NAMES.join("|")
            ),
        }
    }
}

fn words(kind: LossName) -> &'static str {
    match kind {
        LossName::Sum => "the sum",
        LossName::Mean => "the mean",
        LossName::CrossEntropy => "the cross entropy",
        LossName::Nll => "the negative log likelihood",
        LossName::Mse => "the mean squared error",
    }
}

fn shown(dims: &[Option<usize>]) -> String {
    let dims: Vec<String> = dims.iter().map(|dim| dim.map_or("*".into(), |dim| dim.to_string())).collect();
    format!("[{}]", dims.join(", "))
}
