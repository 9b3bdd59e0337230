//! A change of a run: the part that it affects, how large it is, its words, and its edit of the fields.

use lab_analysis::combine::{Helps, Move};
use lab_training::Precision;

use super::super::choices::OptimizerForm;
use super::super::spec::RunSpec;

/// Sizes of changes. Each is larger than all smaller ones that a script usually makes at once.
pub(super) mod size {
    /// A setting outside of the script.
    pub(in crate::run) const SETTING: u32 = 1;
    pub(in crate::run) const LINE: u32 = 2;
    /// A line, and another package.
    pub(in crate::run) const PACKAGE: u32 = 4;
    /// Fewer examples at a time; a little more for each further division.
    pub(in crate::run) const SPLIT: u32 = 4;
    /// Some lines, after which gradients can neither be added up nor clipped.
    pub(in crate::run) const HOOKS: u32 = 6;
    /// Copies between card and host in each step.
    pub(in crate::run) const HOST: u32 = 7;
    /// The numeric results change: more than all changes at once that keep them.
    pub(in crate::run) const NUMERICS: u32 = 40;
    /// The training itself changes.
    pub(in crate::run) const OPTIMIZER: u32 = 80;
    /// Other parameters are trained.
    pub(in crate::run) const ADAPTERS: u32 = 100;
    pub(in crate::run) const SEQUENCE: u32 = 120;
}

/// The part of a run that a change affects. Changes are made in this order, at most one on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Axis {
    Sequence,
    Precision,
    Optimizer,
    /// An optimizer that holds more: for comparison.
    LargerOptimizer,
    Adapters,
    Form,
    Checkpoint,
    Attention,
    Keep,
    Loss,
    ZeroGrad,
    Allocator,
    Buckets,
    Zero,
    Split,
    SavedOn,
    InBackward,
}

impl Axis {
    /// True if a change on the other axis cannot be made beside one on this: of each axis there is one, and a form of the optimizer is that of the run's own.
    pub(in crate::run) fn excludes(self, other: Axis) -> bool {
        let is_optimizer = |axis: Axis| matches!(axis, Axis::Optimizer | Axis::LargerOptimizer);
        self == other || self == Axis::Form && is_optimizer(other) || other == Axis::Form && is_optimizer(self)
    }
}

type Edit = Box<dyn Fn(&mut RunSpec) + Send + Sync>;

/// A change of a run.
pub(in crate::run) struct Change {
    axis: Axis,
    size: u32,
    /// The change in words.
    pub words: String,
    /// Code for the script.
    pub script: String,
    edit: Edit,
}

impl Change {
    pub(super) fn new(
        (axis, size): (Axis, u32),
        words: impl Into<String>,
        script: impl Into<String>,
        edit: impl Fn(&mut RunSpec) + Send + Sync + 'static,
    ) -> Self {
        Self { axis, size, words: words.into(), script: script.into(), edit: Box::new(edit) }
    }

    pub(in crate::run) fn apply(&self, spec: &mut RunSpec) {
        (self.edit)(spec);
    }

    /// Its axis: of each axis, a single change is made.
    pub(in crate::run) fn axis(&self) -> Axis {
        self.axis
    }

    /// True if it may help a run that takes too much.
    pub(in crate::run) fn may_save(&self) -> bool {
        self.axis != Axis::LargerOptimizer
    }

    /// True for the fused form of the optimizer.
    pub(in crate::run) fn is_fused(&self) -> bool {
        self.tried().training.optimizer_impl == Some(OptimizerForm::Fused)
    }

    /// True for 16-bit products of weights that stay as they are.
    pub(in crate::run) fn is_autocast(&self) -> bool {
        let precision = self.tried().training.precision;
        matches!(precision, Some(Precision::AutocastBf16 | Precision::AutocastFp16))
    }

    /// The change of a run of which nothing is said.
    fn tried(&self) -> RunSpec {
        let mut spec = RunSpec::default();
        self.apply(&mut spec);
        spec
    }

    /// True for another form of the optimizer, which saves its temporaries.
    pub(in crate::run) fn saves_temporaries(&self) -> bool {
        self.axis == Axis::Form
    }

    /// Its form for the search.
    pub(in crate::run) fn as_move(&self) -> Move {
        let helps = match self.axis {
            // The fused kernel makes no temporaries, and a loop makes one at a time.
            Axis::Form
            | Axis::Checkpoint
            | Axis::Attention
            | Axis::Keep
            | Axis::Loss
            | Axis::ZeroGrad
            | Axis::Allocator => Helps::Always,
            // Gradients exist while the next micro-batch runs; what is gathered exists beside the shards.
            // A copy of each weight that backward reads exists beside it. The first steps make states while activations are there.
            Axis::Split | Axis::Buckets | Axis::Zero | Axis::SavedOn | Axis::InBackward => Helps::Often,
            Axis::Sequence | Axis::Precision | Axis::Optimizer | Axis::LargerOptimizer | Axis::Adapters => {
                Helps::Unknown
            }
        };
        Move { axis: self.axis as usize, size: self.size, helps }
    }
}
