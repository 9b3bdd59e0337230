//! The kind of mistake, and one line of advice.

use memcore::memory::{Category, Live};
use serde::{Deserialize, Serialize};

use super::holder::Path;

/// Kind of mistake that makes memory grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Results are kept with a graph that holds its saved values: backward never ran through it, or ran with `retain_graph`.
    LivingGraph,
    /// Losses are kept as tensors.
    KeptLosses,
    /// Other results are kept.
    KeptTensors,
    /// Batches are kept.
    KeptBatches,
    /// Gradients are kept.
    KeptGradients,
    /// Optimizers are recreated and the old ones are kept.
    KeptOptimizers,
    /// Parameters are recreated in each step.
    NewParameters,
    /// One tensor grows in each step.
    GrowingTensor,
}

/// Evidence for a cause.
pub(super) struct Evidence<'a> {
    /// The last allocation of the largest site.
    pub(super) live: &'a Live,
    pub(super) path: &'a Path,
}

impl Cause {
    pub(super) fn from_evidence(evidence: &Evidence<'_>) -> Self {
        let Evidence { live, path } = evidence;
        match live.category {
            Category::Gradient => Self::KeptGradients,
            Category::OptimizerState => Self::KeptOptimizers,
            Category::Parameter => Self::NewParameters,
            _ if path.root.is_some() => Self::LivingGraph,
            Category::Input => Self::KeptBatches,
            _ if live.origin.op.contains("loss") => Self::KeptLosses,
            _ => Self::KeptTensors,
        }
    }

    pub(super) fn advice(self, evidence: &Evidence<'_>) -> String {
        match self {
            Self::LivingGraph => format!(
                "keep the value, not its history: append loss.item() or result.detach(), evaluate under no_grad, and call backward without \
                 retain_graph; what is kept now is the result of {}, and with it everything that its graph saved",
                evidence.path.root.unwrap_or("a node")
            ),
            Self::KeptLosses => "append loss.item(), a number on the host, instead of the loss".into(),
            Self::KeptTensors => {
                "clear the list after each step, or keep what is needed on the host: result.detach().cpu()".into()
            }
            Self::KeptBatches => {
                "keep batches on the host and copy each when it is used; do not append them to a list".into()
            }
            Self::KeptGradients => "clear gradients with zero_grad() and keep copies of them on the host only".into(),
            Self::KeptOptimizers => "make the optimizer once, before the loop, and drop an old one".into(),
            Self::NewParameters => "make parameters once, before the loop".into(),
            Self::GrowingTensor => {
                "a tensor is made longer in each step: collect the parts on the host, or write into one of full size"
                    .into()
            }
        }
    }
}
