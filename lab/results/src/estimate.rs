//! What a training takes on a card, for programs that schedule trainings (`vramlab-estimate-1`).

use std::collections::BTreeMap;

use lab_base::figures::short;
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

use super::{Findings, PartOnCard, Premise, TrainResult};

/// A range. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EstimatedRange {
    /// The least that a card may show.
    pub lower_bytes: u64,
    /// What is expected.
    pub expected_bytes: u64,
    /// The most that a card may show.
    pub upper_bytes: u64,
}

/// What the process of a training takes on a card at most. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EstimateResult {
    /// True if the upper figure fits, false if the lower one does not; null between the two, and without a card.
    pub fits: Option<bool>,
    /// The whole process.
    #[serde(flatten)]
    pub process: EstimatedRange,
    /// The parts of it, which add up: tensors by category at the peak, what PyTorch reserves beyond them, the CUDA context, libraries.
    pub by_category: BTreeMap<String, EstimatedRange>,
    /// The same parts with all tensors as one, and where each figure is from.
    #[serde(default)]
    pub parts: Vec<PartOnCard>,
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Peak of reserved memory.
    pub reserved_bytes: u64,
    /// Memory that a process may use; null without a card.
    pub budget_bytes: Option<u64>,
    /// Memory that is missing; null without a card, and if it fits.
    pub missing_bytes: Option<u64>,
    /// What is assumed.
    pub premises: Vec<Premise>,
    /// Why the result may not be what was asked for.
    pub warnings: Vec<String>,
}

impl EstimateResult {
    /// Takes the figures of a prediction; `None` of a run without one.
    pub fn from_run(run: TrainResult) -> Option<Self> {
        let found = run.prediction?;
        let card = &found.on_card;
        let held = found.needs_peak.as_ref().or(run.peak.as_ref());
        let mut by_category = BTreeMap::new();
        for part in &card.parts {
            match held.filter(|_| part.name == TENSORS) {
                Some(held) => {
                    let held = held.by_category.iter().filter(|(_, bytes)| **bytes > 0);
                    by_category.extend(held.map(|(name, bytes)| (name.clone(), share(*bytes, part))));
                }
                None => {
                    by_category.insert(part.name.clone(), range(part));
                }
            }
        }
        Some(Self {
            fits: found.fits,
            process: EstimatedRange {
                lower_bytes: card.lower_bytes,
                expected_bytes: card.expected_bytes,
                upper_bytes: card.upper_bytes,
            },
            by_category,
            parts: card.parts.clone(),
            allocated_bytes: found.needs.allocated_bytes,
            reserved_bytes: found.needs.reserved_here_bytes.unwrap_or(found.needs.reserved_bytes),
            budget_bytes: found.budget_bytes,
            missing_bytes: found.needs.missing_bytes,
            premises: run.premises,
            warnings: run.warnings,
        })
    }
}

impl Findings for EstimateResult {
    const SCHEMA: &'static str = "vramlab-estimate-1";

    fn title(&self) -> String {
        let EstimatedRange { lower_bytes, expected_bytes, upper_bytes } = self.process;
        format!("{} expected, {} to {}", short(expected_bytes), short(lower_bytes), short(upper_bytes))
    }

    fn sections(&self) -> Vec<Section> {
        let row = |(name, part): (&String, &EstimatedRange)| {
            let figures = [part.lower_bytes, part.expected_bytes, part.upper_bytes].map(Cell::Bytes);
            std::iter::once(Cell::Text(name.replace('_', " "))).chain(figures).collect()
        };
        let columns = ["part", "lower", "expected", "upper"];
        vec![Section::Table(Table::new("By category", &columns, self.by_category.iter().map(row).collect()))]
    }
}

/// The part that categories divide.
const TENSORS: &str = "tensors";

fn range(part: &PartOnCard) -> EstimatedRange {
    EstimatedRange { lower_bytes: part.lower_bytes, expected_bytes: part.expected_bytes, upper_bytes: part.upper_bytes }
}

/// The range of a category: that of all tensors, in proportion.
fn share(bytes: u64, tensors: &PartOnCard) -> EstimatedRange {
    let of = |whole: u64| match tensors.expected_bytes {
        0 => bytes,
        expected => u64::try_from(u128::from(bytes) * u128::from(whole) / u128::from(expected)).unwrap_or(u64::MAX),
    };
    EstimatedRange {
        lower_bytes: of(tensors.lower_bytes),
        expected_bytes: of(tensors.expected_bytes),
        upper_bytes: of(tensors.upper_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_has_its_part_of_the_range_of_tensors() {
        let tensors = PartOnCard { lower_bytes: 90, expected_bytes: 100, upper_bytes: 120, ..PartOnCard::default() };
        let expected = EstimatedRange { lower_bytes: 45, expected_bytes: 50, upper_bytes: 60 };
        assert_eq!(share(50, &tensors), expected);
        let exact = PartOnCard { lower_bytes: u64::MAX, expected_bytes: u64::MAX, upper_bytes: u64::MAX, ..tensors };
        assert_eq!(share(7, &exact).upper_bytes, 7);
        assert_eq!(share(7, &PartOnCard::default()).lower_bytes, 7);
    }
}
