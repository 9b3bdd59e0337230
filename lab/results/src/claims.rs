//! Claims with their verdicts, in one table (`vramlab-claims-1`).

use lab_base::figures::{counted, rounded};
use lab_base::section::{Cell, Section, Table, Verdict};
use lab_experiments::claims::CheckedClaim;
use serde::{Deserialize, Serialize};

use super::device::DeviceInfo;
use super::findings::{Findings, Settings};

/// The claims of several experiments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimsResult {
    /// Claims by article; those that are in no article come last.
    pub claims: Vec<CheckedClaim>,
    /// True if it was stopped before the last experiment.
    pub interrupted: bool,
    /// The settings in force.
    pub settings: Settings,
    /// The device.
    pub device: DeviceInfo,
}

impl ClaimsResult {
    fn table_with(&self, condition: impl Fn(&CheckedClaim) -> String) -> Table {
        let row = |claim: &CheckedClaim| {
            let texts = [claim.claim.clone(), source(claim), claim.verdict.name().into(), claim.number.clone()];
            texts.into_iter().chain([condition(claim)]).map(Cell::Text).collect()
        };
        let columns = ["claim", "source", "verdict", "number", "condition"];
        Table::new("Claims, checked", &columns, self.claims.iter().map(row).collect())
    }

    /// A line for each claim: the verdict, to what extent or the figures that decide, the claim.
    fn in_short(&self) -> Table {
        let row = |claim: &CheckedClaim| {
            let number = match claim.lead.as_str() {
                "" => rounded(&claim.number),
                lead => lead.to_string(),
            };
            [claim.verdict.name().into(), claim.claim.clone(), number].map(Cell::Text).to_vec()
        };
        Table::new("", &["verdict", "claim", "figures, or how far"], self.claims.iter().map(row).collect())
    }
}

/// Number of claims, and number of each verdict.
pub(super) fn sum(verdicts: &[Verdict]) -> String {
    let count = |verdict: Verdict| verdicts.iter().filter(|of| **of == verdict).count();
    format!(
        "{}: {} hold, {} depend, {} fail, {} not tested",
        counted(verdicts.len() as u64, "claim"),
        count(Verdict::Holds),
        count(Verdict::Depends),
        count(Verdict::Fails),
        count(Verdict::NotTested)
    )
}

/// The article's number, or another source.
fn source(claim: &CheckedClaim) -> String {
    if claim.articles.is_empty() { claim.source.clone() } else { claim.articles.join(", ") }
}

impl Findings for ClaimsResult {
    const SCHEMA: &'static str = "vramlab-claims-1";

    fn title(&self) -> String {
        let verdicts: Vec<Verdict> = self.claims.iter().map(|claim| claim.verdict).collect();
        sum(&verdicts)
    }

    fn sections(&self) -> Vec<Section> {
        let whole = vec![Section::Table(self.table_with(|claim| claim.condition.clone()))];
        vec![
            // A table, not a list: a claim that is cut says something else.
            Section::Table(self.in_short()),
            Section::Note("Sources and conditions: --full, vramlab ask NAME, or --export-csv FILE.".into()),
            Section::Details { title: "With sources and conditions".into(), sections: whole },
        ]
    }

    fn table(&self) -> Option<Table> {
        Some(self.table_with(|claim| claim.condition.clone()))
    }
}
