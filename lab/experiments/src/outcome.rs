//! Results of an experiment, as data.

use std::collections::BTreeMap;

use lab_base::section::{Table, Verdict};
use serde::{Deserialize, Serialize};

/// A claim, and its source.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Claim {
    /// Short form of the statement.
    pub text: &'static str,
    /// Name of the source, such as an article, a paper or an issue.
    pub source: &'static str,
}

/// A claim with its verdict.
#[derive(Clone, Debug)]
pub struct JudgedClaim {
    /// The statement and its source.
    pub claim: Claim,
    /// Whether the claim holds, fails, depends, or was not tested.
    pub verdict: Verdict,
    /// If the verdict is "depends": on what, or how far the claim holds, in a few words.
    pub lead: &'static str,
    /// Figures that decide, each with its unit. Empty if nothing was measured.
    pub number: String,
    /// Condition of the verdict, or the reason for it.
    pub condition: String,
}

/// Writes deciding figures in bytes, each after its label: `peak, fp32: 12 B; fp16: 8 B`.
pub(super) fn in_bytes<const N: usize>(figures: [(&str, u64); N]) -> String {
    listed(figures.map(|(label, bytes)| (label, format!("{bytes} B"))))
}

/// Writes deciding counts, each after its label. `None` is a count that a device without values cannot give.
pub(super) fn in_counts<const N: usize>(figures: [(&str, Option<u64>); N]) -> String {
    let said = |count: Option<u64>| count.map_or_else(|| "not known without values".into(), |n| n.to_string());
    listed(figures.map(|(label, count)| (label, said(count))))
}

fn listed<const N: usize>(figures: [(&str, String); N]) -> String {
    let named = |(label, figure): (&str, String)| if label.is_empty() { figure } else { format!("{label}: {figure}") };
    figures.map(named).join("; ")
}

/// Figures of one setting, measured and predicted. Keys name quantities (`peak_bytes`); figures are bytes, counts or milliseconds.
/// A quantity that the device cannot give is `null`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// The setting that was varied: `batch` → `32`.
    pub setting: BTreeMap<String, serde_json::Value>,
    /// Predictions by a closed form in the sizes. For a program without a cache, predictions from its list of
    /// allocations.
    pub predicted: BTreeMap<String, Option<i64>>,
    /// Figures from the run.
    pub measured: BTreeMap<String, Option<i64>>,
    /// Measured minus predicted, for quantities that are in both.
    pub residual: BTreeMap<String, i64>,
}

impl Measurement {
    /// Makes an empty measurement for a setting.
    pub fn with_setting(setting: impl IntoIterator<Item = (&'static str, serde_json::Value)>) -> Self {
        let setting = setting.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        Self { setting, ..Self::default() }
    }

    /// Adds a measured quantity.
    pub fn measure(&mut self, quantity: &str, value: u64) {
        self.measured.insert(quantity.into(), Some(value as i64));
        self.settle(quantity);
    }

    /// Adds a quantity that this device cannot give.
    pub fn unknown(&mut self, quantity: &str) {
        self.measured.insert(quantity.into(), None);
    }

    /// Adds a predicted quantity.
    pub fn predict(&mut self, quantity: &str, value: u64) {
        self.predicted.insert(quantity.into(), Some(value as i64));
        self.settle(quantity);
    }

    fn settle(&mut self, quantity: &str) {
        if let (Some(Some(measured)), Some(Some(predicted))) =
            (self.measured.get(quantity), self.predicted.get(quantity))
        {
            self.residual.insert(quantity.into(), measured - predicted);
        }
    }
}

/// Values over the steps of a run, for drawing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// Title of the drawing.
    pub title: String,
    /// Name of each series and its bytes, one per label.
    pub series: Vec<(String, Vec<u64>)>,
    /// Label of each point.
    pub labels: Vec<String>,
}

/// The answer to an experiment's question, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortAnswer {
    /// The answer, in a word or a few.
    pub word: String,
    /// The two or three figures that carry the answer, and the exceptions, a line each.
    pub figures: Vec<String>,
}

impl ShortAnswer {
    /// Makes an answer from a word and the figures that carry it.
    pub(super) fn new<const N: usize>(word: impl Into<String>, figures: [String; N]) -> Self {
        Self { word: word.into(), figures: figures.into() }
    }
}

/// Results of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The answer in short. Empty if the experiment was stopped before.
    pub answer: ShortAnswer,
    /// The claims, judged.
    pub claims: Vec<JudgedClaim>,
    /// One row per setting.
    pub rows: Vec<Measurement>,
    /// Tables for people.
    pub tables: Vec<Table>,
    /// Curves for drawing.
    pub curves: Vec<Curve>,
    /// Further observations, a sentence each.
    pub notes: Vec<String>,
    /// True if the experiment was stopped early.
    pub interrupted: bool,
}

impl Outcome {
    /// Adds a row. Each pair names one figure that was found in two ways. A note says where the two differ.
    pub(super) fn push_compared(&mut self, row: Measurement, pairs: &[(&str, &str)]) {
        for (one, other) in pairs {
            if let (Some(Some(a)), Some(Some(b))) = (row.measured.get(*one), row.measured.get(*other))
                && a != b
            {
                let setting: Vec<String> = row.setting.iter().map(|(key, value)| format!("{key} {value}")).collect();
                self.notes.push(format!("With {}, {one} is {a}, but {other} is {b}.", setting.join(", ")));
            }
        }
        self.rows.push(row);
    }

    /// Returns the predictions that differ from the measurement: quantity and residual of each.
    pub fn unexplained(&self) -> Vec<(String, i64)> {
        let all = self.rows.iter().flat_map(|row| row.residual.iter());
        all.filter(|(_, residual)| **residual != 0).map(|(quantity, residual)| (quantity.clone(), *residual)).collect()
    }
}
