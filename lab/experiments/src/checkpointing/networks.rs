//! Networks that are checkpointed, with predictions from their sizes.

use lab_analysis::predict::{MAX_ROUNDED_BYTES, rounded};
use lab_base::error::Result;
use lab_models::{Architecture, ModelOptions, Recompute, architecture};
use lab_training::OptimizerKind;
use memcore::Profile;
use memcore::nn::Parameter;

/// Layers of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A decoder with eager attention over `sequence` tokens of a vocabulary of `vocabulary`.
    Decoder { sequence: usize, vocabulary: usize, heads: usize },
    /// Linear layers with a ReLU between them, and `classes` outputs at the end.
    Perceptron { classes: usize },
}

/// A network, and how it is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) blocks: usize,
    pub(super) width: usize,
    pub(super) batch: usize,
    pub(super) optimizer: OptimizerKind,
}

/// Role of a block in the recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The block keeps its saved values.
    Kept,
    /// The block is recomputed, and its input is kept.
    First,
    /// The block is recomputed from the result of the block before.
    Inside,
}

fn places(recompute: &Recompute, blocks: usize) -> Vec<Place> {
    let root = (blocks as f64).sqrt().round() as usize;
    let place = |i: usize| match recompute {
        Recompute::None => Place::Kept,
        Recompute::Blocks => Place::First,
        Recompute::Sqrt if i.is_multiple_of(root.max(1)) => Place::First,
        Recompute::Sqrt => Place::Inside,
        Recompute::These(_) | Recompute::Every(_) if recompute.covers(i) => Place::First,
        Recompute::These(_) | Recompute::Every(_) | Recompute::Modules(_) => Place::Kept,
    };
    (0..blocks).map(place).collect()
}

impl Network {
    pub(super) fn architecture(&self, recompute: &Recompute) -> Result<Box<dyn Architecture>> {
        let base = ModelOptions {
            layers: Some(self.blocks),
            width: Some(self.width),
            recompute: recompute.clone(),
            ..ModelOptions::default()
        };
        match self.kind {
            Kind::Decoder { sequence, vocabulary, heads } => {
                let (sequence, vocabulary, heads) = (Some(sequence), Some(vocabulary), Some(heads));
                architecture("gpt", &ModelOptions { sequence, vocabulary, heads, ..base })
            }
            Kind::Perceptron { classes } => {
                let (features, classes) = (Some(self.width), Some(classes));
                architecture("mlp", &ModelOptions { features, classes, ..base })
            }
        }
    }

    /// Bytes that the graph keeps when the loss exists. `None` if a block is so large that the pool may add to it.
    pub(super) fn foreseen_kept_bytes(&self, recompute: &Recompute) -> Option<u64> {
        let places = places(recompute, self.blocks);
        let f32s = |n: usize| rounded(4 * n as u64);
        match self.kind {
            Kind::Decoder { sequence, vocabulary, heads } => {
                let rows = self.batch * sequence;
                let largest = rows * (4 * self.width).max(vocabulary).max(heads * sequence);
                let hidden = f32s(rows * self.width);
                let statistics = 2 * f32s(rows);
                // Both normalised inputs, queries, keys, values, the result of attention, the first sum; the wide layer before and after GELU; the
                // attention weights.
                let inside = 7 * hidden
                    + 2 * f32s(4 * rows * self.width)
                    + f32s(self.batch * heads * sequence * sequence)
                    + 2 * statistics;
                let of_block = |place: &Place| match place {
                    Place::Kept => hidden + inside,
                    Place::First => hidden,
                    Place::Inside => 0,
                };
                // Input and result of the last norm, log-probabilities, the sum of the class weights, and the positions.
                let head = 2 * hidden + statistics + f32s(rows * vocabulary) + f32s(1) + rounded(8 * sequence as u64);
                (4 * largest as u64 <= MAX_ROUNDED_BYTES).then(|| head + places.iter().map(of_block).sum::<u64>())
            }
            Kind::Perceptron { classes } => {
                let hidden = f32s(self.batch * self.width);
                // The tensor between two blocks is kept by the ReLU before it, by the linear layer after it, or as the input of a segment. The
                // last layer keeps the tensor after the last block.
                let joint = |pair: &[Place]| pair[0] == Place::Kept || pair[1] != Place::Inside;
                let kept = places.windows(2).filter(|pair| joint(pair)).count() + 1;
                (4 * (self.batch * self.width) as u64 <= MAX_ROUNDED_BYTES)
                    .then(|| kept as u64 * hidden + f32s(self.batch * classes) + f32s(1))
            }
        }
    }

    /// Number of forward kernels that backward launches again. A segment ends with the last value that it saves: in a decoder's block, the last
    /// product and the addition after it are not recomputed.
    pub(super) fn foreseen_kernels(&self, recompute: &Recompute) -> u64 {
        let places = places(recompute, self.blocks);
        let count = |which: &dyn Fn(&Place) -> bool| places.iter().filter(|place| which(place)).count() as u64;
        let again = count(&|place| *place != Place::Kept);
        let segments = count(&|place| *place == Place::First);
        // With more than one example, queries, keys and values are copied to become batches of matrices.
        let copies = if self.batch > 1 { 3 } else { 0 };
        match self.kind {
            Kind::Decoder { .. } => again * (KERNELS_OF_A_DECODER_BLOCK + copies) - 2 * segments,
            Kind::Perceptron { .. } => again * 2,
        }
    }

    /// Bytes at the highest moment of Adam's update, if that is the peak of the step: parameters, gradients, two moments and a root of each, and
    /// the memory that the script's variables and the libraries hold. Recomputation runs products with a bias in backward's thread. Their library
    /// has a workspace of its own for that thread.
    pub(super) fn foreseen_update_bytes(
        &self,
        recompute: &Recompute,
        parameters: &[Parameter],
        profile: &Profile,
    ) -> Option<u64> {
        let Kind::Decoder { sequence, vocabulary, .. } = self.kind else { return None };
        let sizes: Vec<u64> = parameters.iter().map(|p| 4 * p.array().numel() as u64).collect();
        let rows = (self.batch * sequence) as u64;
        let mask = rounded((sequence * sequence) as u64);
        let variables = 2 * rounded(8 * rows) + rounded(4 * rows * vocabulary as u64) + rounded(4);
        let threads_with_bias = if *recompute == Recompute::None { 1 } else { 2 };
        let workspaces = 2 * profile.gemm_workspace_bytes + threads_with_bias * profile.gemm_epilogue_workspace_bytes;
        let five: u64 = sizes.iter().map(|bytes| 5 * rounded(*bytes)).sum();
        sizes.iter().all(|bytes| *bytes <= MAX_ROUNDED_BYTES).then_some(five + mask + variables + workspaces)
    }
}

/// Kernels of a block: two norms, four linear layers, GELU, two sums; the product of queries and keys, its scaling, masking and softmax, the
/// product with the values, a copy of the result. Copies of queries, keys and values are added to that.
const KERNELS_OF_A_DECODER_BLOCK: u64 = 2 + 4 + 1 + 2 + 1 + 3 + 1 + 1;
