//! Experiments run for every combination of values (`vramlab-experiment-scan-1`).

use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::experiment::ExperimentResult;
use super::findings::{Findings, plain};
use super::shard::Shard;

/// A scan of experiments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentScanResult {
    /// Names of the scanned options, in order.
    pub parameters: Vec<String>,
    /// True if it was stopped before the last point.
    pub interrupted: bool,
    /// Points that were run, in order.
    pub results: Vec<ExperimentPoint>,
    /// The part of a scan that it is; absent for a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// A point of the scan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentPoint {
    /// Values, as typed.
    pub parameters: Map<String, Value>,
    /// Results of the experiments at this point, with their schema.
    #[serde(serialize_with = "with_schema")]
    pub experiments: Vec<ExperimentResult>,
}

fn with_schema<S: Serializer>(found: &[ExperimentResult], serializer: S) -> Result<S::Ok, S::Error> {
    let all: Result<Vec<Value>, _> = found.iter().map(Findings::to_json).collect();
    all.map_err(serde::ser::Error::custom)?.serialize(serializer)
}

impl ExperimentScanResult {
    /// A table with a row for each claim at each point.
    fn verdicts(&self) -> Table {
        let columns: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        let columns = [columns, vec!["claim", "verdict", "number"]].concat();
        let mut rows = Vec::new();
        for point in &self.results {
            for claim in point.experiments.iter().flat_map(|found| &found.claims) {
                let values =
                    self.parameters.iter().map(|name| point.parameters.get(name).map(plain).unwrap_or_default());
                let number = if claim.number.is_empty() { "–".to_string() } else { claim.number.clone() };
                let told = [claim.text.clone(), claim.verdict.name().into(), number];
                rows.push(values.chain(told).map(Cell::Text).collect());
            }
        }
        Table::new("Verdicts, for every combination", &columns, rows)
    }
}

impl Findings for ExperimentScanResult {
    const SCHEMA: &'static str = "vramlab-experiment-scan-1";

    fn title(&self) -> String {
        let claims = self.results.iter().flat_map(|point| &point.experiments).flat_map(|found| &found.claims);
        let verdicts: Vec<_> = claims.map(|claim| claim.verdict).collect();
        format!("Verdicts by {}: {}", self.parameters.join(" and "), super::claims::sum(&verdicts))
    }

    fn sections(&self) -> Vec<Section> {
        vec![Section::List(self.verdicts())]
    }
}
