//! A measured figure beside what was said of it.

use std::collections::BTreeMap;

use lab_base::bands::{Band, Basis};
use serde_json::Value;

use super::tables::{Row, Said};

/// The place of a row that ran out of memory, against a Yes.
pub(super) const SAID_TO_FIT: &str = "said to fit";

/// Parts of a thousand of reserved memory by which a card was outside of what was said, without a band; at most 0 if it was inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed<'a> {
    /// Who published it.
    pub(super) source: &'a str,
    pub(super) card: &'a str,
    pub(super) basis: Basis,
    pub(super) below: f64,
    pub(super) above: f64,
}

impl Needed<'_> {
    /// True if a band contains it.
    pub(super) fn is_above(&self, band: &Band) -> bool {
        self.above > band.above as f64
    }

    pub(super) fn is_below(&self, band: &Band) -> bool {
        self.below > band.below as f64
    }
}

/// A row with its interval, in MiB.
pub(super) struct Judged<'a> {
    pub(super) row: &'a Row,
    pub(super) said: &'a Said,
    /// Reserved memory as it was said, and what a process takes besides: least, expected, most.
    reserved: [f64; 3],
    beside: [f64; 3],
    /// The interval.
    pub(super) figures: [f64; 3],
}

/// Figures are rounded to MiB.
const ROUNDED: f64 = 1.0;

impl Judged<'_> {
    pub(super) fn place(&self) -> &'static str {
        let [lower, _, upper] = self.figures;
        match self.row.published {
            // What the card had when memory ran out does not count.
            _ if self.row.ran_out && self.said.fits == "true" => SAID_TO_FIT,
            _ if self.row.ran_out => "inside",
            measured if measured > upper + ROUNDED => "above",
            measured if measured < lower - ROUNDED => "below",
            _ => "inside",
        }
    }

    /// Percent by which what was expected is above the card.
    pub(super) fn error(&self) -> f64 {
        100.0 * (self.figures[1] / self.row.published - 1.0)
    }

    pub(super) fn width(&self) -> f64 {
        100.0 * (self.figures[2] - self.figures[0]) / self.row.published
    }

    pub(super) fn needed(&self) -> Needed<'_> {
        let ([least, _, most], [beside, _, beside_most]) = (self.reserved, self.beside);
        let measured = self.row.published;
        Needed {
            source: &self.row.source,
            card: &self.row.card,
            basis: self.said.basis,
            below: 1000.0 * (least + beside - ROUNDED - measured) / least.max(1.0),
            above: 1000.0 * (measured - ROUNDED - beside_most - most) / most.max(1.0),
        }
    }
}

/// The name of a kind.
pub(super) fn kind(basis: Basis) -> String {
    match serde_json::to_value(basis) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Every row that has an answer, with its interval by these bands.
pub(super) fn judged<'a>(rows: &'a [Row], answers: &'a BTreeMap<String, Said>, bands: &[Band]) -> Vec<Judged<'a>> {
    let of = |row: &'a Row| {
        let said = answers.get(&row.id)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let band = bands.iter().find(|band| band.basis == said.basis)?;
        let [least, expected, most] = said.reserved;
        let beside = match row.beside {
            Some(mib) => mib.map(|mib| mib as f64),
            None => said.beside.map(mib),
        };
        let within = [band.lower(least), expected, band.upper(most)].map(mib);
        let figures = std::array::from_fn(|i| within[i] + beside[i]);
        Some(Judged { row, said, reserved: said.reserved.map(mib), beside, figures })
    };
    rows.iter().filter_map(of).collect()
}

/// Rows that ran out of memory where they were measured, and are said to fit.
pub(super) fn said_to_fit<'a>(judged: &'a [Judged<'_>]) -> Vec<&'a str> {
    judged.iter().filter(|one| one.place() == SAID_TO_FIT).map(|one| one.row.id.as_str()).collect()
}

/// What GPUMemNet's processes take besides reserved memory, in MiB: of every second of its perceptrons the middle 98 %, and the median.
pub fn own_context(rows: &[Row], answers: &BTreeMap<String, Said>) -> [u64; 3] {
    let perceptrons = rows.iter().filter(|row| row.id.starts_with("gpumemnet-mlp-")).step_by(2);
    let beside = |row: &Row| Some(row.published as u64 - (answers.get(&row.id)?.reserved[1] >> 20));
    let mut found: Vec<u64> = perceptrons.filter_map(beside).collect();
    found.sort_unstable();
    [1, 50, 99].map(|percent| found.get((found.len() * percent / 100).min(found.len() - 1)).copied().unwrap_or(0))
}
