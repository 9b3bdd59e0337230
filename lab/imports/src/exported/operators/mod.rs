//! The operators of PyTorch that a graph may call, each mapped to [`memcore::ops`].
//!
//! A call fails if its mapping does not read one of the arguments: nothing is left out silently.

mod arithmetic;
mod control;
mod creation;
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
    ("losses", losses::TABLE),
    ("arithmetic", arithmetic::TABLE),
    ("reductions", reductions::TABLE),
    ("shapes", shapes::TABLE),
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
    volumes::PREDICTED_ONLY.contains(&target)
}

/// Returns the names of all represented operators, in groups.
pub fn covered() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    TABLES.iter().map(|(group, table)| (*group, table.iter().map(|(name, _)| *name).collect()))
}
