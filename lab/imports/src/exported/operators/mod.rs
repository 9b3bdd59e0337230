//! The operators of PyTorch that a graph may call, each mapped to [`memcore::ops`].
//!
//! A call fails if its mapping does not read one of the arguments: nothing is left out silently.

mod arithmetic;
mod arranged;
mod constants;
mod control;
mod creation;
mod formulas;
mod fourier;
pub(super) mod host;
mod indexing;
mod layers;
mod losses;
mod order;
mod recurrent;
mod reductions;
mod shapes;
mod table;
mod vision;
mod volumes;
mod written;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(super) use table::Operator;
use table::Table;

const TABLES: &[(&str, Table)] = &[
    ("layers", layers::TABLE),
    ("sequences", recurrent::TABLE),
    ("pictures", vision::TABLE),
    ("volumes and samples", volumes::TABLE),
    ("spectra and complex numbers", fourier::TABLE),
    ("losses", losses::TABLE),
    ("arithmetic", arithmetic::TABLE),
    ("further functions", formulas::TABLE),
    ("reductions", reductions::TABLE),
    ("shapes", shapes::TABLE),
    ("further shapes", arranged::TABLE),
    ("indices", indexing::TABLE),
    ("order and groups", order::TABLE),
    ("made on the spot", creation::TABLE),
    ("written in place", written::TABLE),
    ("sizes, types and regions", control::TABLE),
];

/// Returns the operator of this name, or `None` if it is not represented.
pub(super) fn find(target: &str) -> Option<Operator> {
    static ALL: LazyLock<HashMap<&str, Operator>> =
        LazyLock::new(|| TABLES.iter().flat_map(|(_, table)| table.iter().copied()).collect());
    ALL.get(target).copied()
}

/// True for an operator whose memory is predicted, and whose values no backend computes.
pub(super) fn is_predicted_only(target: &str) -> bool {
    let listed = [volumes::PREDICTED_ONLY, losses::PREDICTED_ONLY].iter().any(|names| names.contains(&target));
    listed || fourier::is_predicted_only(target)
}

/// True for an operator by whose draws Python drops whole branches, which it takes as they are under `model.eval()`.
pub(super) fn draws(target: &str) -> bool {
    ["bernoulli", "rand.", "rand_like.", "uniform_."].iter().any(|begin| target.starts_with(begin))
}

/// Which operators a sentence is about, by their names.
type Which = fn(&str) -> bool;

/// What an answer takes for granted of some operators, or leaves out: which these are, and a sentence.
pub(super) const NOTES: &[(Which, &str)] = &[
    (
        |target| target == losses::CTC_OF_VALUES,
        "What CTC saves grows with the longest target of the batch, which is a value: it is taken to be as long as the targets are wide.",
    ),
    (
        fourier::is_transform,
        "Left out are the work areas of cuFFT's plans, temporaries of each Fourier transform: only a card knows their sizes.",
    ),
];

/// Operators whose memory for channels-last pictures is recorded. The others refuse them.
const CHANNELS_LAST: &[&str] = &[
    "_assert_tensor_metadata.default",
    "adaptive_avg_pool2d.default",
    "add.Tensor",
    "add_.Tensor",
    "avg_pool2d.default",
    "batch_norm.default",
    "cat.default",
    "conv2d.default",
    "conv2d.padding",
    "conv_transpose2d.input",
    "dropout.default",
    "flatten.using_ints",
    "gelu.default",
    "hardsigmoid.default",
    "hardswish.default",
    "hardswish_.default",
    "max_pool2d.default",
    "mean.default",
    "mean.dim",
    "mul.Tensor",
    "permute.default",
    "relu.default",
    "relu6.default",
    "relu6_.default",
    "relu_.default",
    "reshape.default",
    "sigmoid.default",
    "silu.default",
    "silu_.default",
    "sym_size.int",
    "view.default",
];

/// True if it is known what an operator takes of channels-last pictures.
pub(super) fn takes_channels_last(target: &str) -> bool {
    CHANNELS_LAST.binary_search(&target).is_ok()
}

pub(super) use constants::of_constants;
pub(super) use fourier::{meet_complex, takes_complex};
pub(super) use recurrent::is_of_layers;

/// Returns the names of all represented operators, in groups.
pub fn covered() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    TABLES.iter().map(|(group, table)| (*group, table.iter().map(|(name, _)| *name).collect()))
}
