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
mod properties;
mod recurrent;
mod reductions;
mod shapes;
mod table;
mod vision;
mod volumes;
mod written;

use std::collections::HashMap;
use std::sync::LazyLock;

use properties::PROPERTIES;
use table::{Run, Table};

use super::program::OperatorNumber;

const TABLES: &[(&str, Table)] = &[
    ("layers", layers::TABLE),
    ("sequences", recurrent::TABLE),
    ("pictures", vision::TABLE),
    ("volumes and samples", volumes::TABLE),
    ("spectra and complex numbers", fourier::TABLE),
    ("losses", losses::TABLE),
    ("arithmetic", arithmetic::TABLE),
    ("pairs and runs of elements", formulas::TABLE),
    ("reductions", reductions::TABLE),
    ("shapes", shapes::TABLE),
    ("joins and turns", arranged::TABLE),
    ("indices", indexing::TABLE),
    ("order and groups", order::TABLE),
    ("made on the spot", creation::TABLE),
    ("written in place", written::TABLE),
    ("sizes, types and regions", control::TABLE),
];

/// An operator that graphs may call.
pub(super) struct Operator {
    /// PyTorch's name after `aten.`.
    pub name: &'static str,
    /// Runs it.
    pub run: Run,
    properties: &'static [Property],
}

impl Operator {
    /// Returns the operator of this name, or `None` if it is not supported.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        Self::number(name).map(Self::numbered)
    }

    /// Returns the number of the operator of this name, by which a graph refers to it.
    pub(super) fn number(name: &str) -> Option<OperatorNumber> {
        ALL.numbers.get(name).copied()
    }

    /// Returns the operator of a number.
    pub(super) fn numbered(number: OperatorNumber) -> &'static Self {
        &ALL.operators[usize::from(number)]
    }

    /// True if it has this property.
    pub(super) fn is(&self, property: Property) -> bool {
        self.properties.contains(&property)
    }

    /// True if it is known what it takes of complex numbers.
    pub(super) fn takes_complex(&self) -> bool {
        self.is(Property::Complex) || self.is(Property::ComplexAndReal)
    }
}

/// True if the operator of this name has a property.
pub(super) fn has(name: &str, property: Property) -> bool {
    Operator::named(name).is_some_and(|operator| operator.is(property))
}

/// All operators, in the order of their tables.
struct All {
    operators: Vec<Operator>,
    numbers: HashMap<&'static str, OperatorNumber>,
}

static ALL: LazyLock<All> = LazyLock::new(|| {
    let properties: HashMap<&str, &[Property]> = PROPERTIES.iter().copied().collect();
    let of = |(name, run): &(&'static str, Run)| Operator {
        name,
        run: *run,
        properties: properties.get(name).copied().unwrap_or_default(),
    };
    let operators: Vec<Operator> = TABLES.iter().flat_map(|(_, table)| *table).map(of).collect();
    let numbers = operators.iter().zip(0..).map(|(operator, number)| (operator.name, number)).collect();
    All { operators, numbers }
});

pub(super) use constants::of_constants;
pub(super) use properties::{NOTES, Property};

/// Returns the names of all supported operators, in groups.
pub fn covered() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    TABLES.iter().map(|(group, table)| (*group, table.iter().map(|(name, _)| *name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_those_of_represented_operators_in_order() {
        assert!(PROPERTIES.is_sorted_by(|(one, _), (other, _)| one < other));
        for (name, _) in PROPERTIES {
            assert!(Operator::named(name).is_some(), "{name}");
        }
        assert_eq!(ALL.operators.len(), ALL.numbers.len(), "one operator of each name");
    }
}
