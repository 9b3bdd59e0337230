//! Claims with their verdicts, in one table (`vramlab-claims-1`).

use lab_base::figures::counted;
use lab_base::section::{Cell, Section, Table, Verdict};
use lab_experiments::claims::CheckedClaim;
use serde::{Deserialize, Serialize};

use super::device::DeviceInfo;
use super::findings::{Findings, Settings};

/// Letters of a condition that the short table has.
const MAX_LETTERS: usize = 120;

/// The claims of several experiments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimsResult {
    /// By article, those of nobody's article last.
    pub claims: Vec<CheckedClaim>,
    /// Whether it was stopped before the last experiment.
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

    fn sum(&self) -> String {
        let count = |verdict: Verdict| self.claims.iter().filter(|claim| claim.verdict == verdict).count();
        format!(
            "{}: {} hold, {} depend, {} fail, {} not tested. Whole conditions: vramlab run NAME, or --export-csv.",
            counted(self.claims.len() as u64, "claim"),
            count(Verdict::Holds),
            count(Verdict::Depends),
            count(Verdict::Fails),
            count(Verdict::NotTested)
        )
    }
}

/// The article's number, or who else says so.
fn source(claim: &CheckedClaim) -> String {
    if claim.articles.is_empty() { claim.source.clone() } else { claim.articles.join(", ") }
}

fn beginning(condition: &str) -> String {
    if condition.chars().count() <= MAX_LETTERS {
        return condition.to_string();
    }
    let cut: String = condition.chars().take(MAX_LETTERS).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{} …", &cut[..end])
}

impl Findings for ClaimsResult {
    const SCHEMA: &'static str = "vramlab-claims-1";

    fn title(&self) -> String {
        "Claims".into()
    }

    fn sections(&self) -> Vec<Section> {
        let short = self.table_with(|claim| beginning(&claim.condition));
        let whole = vec![Section::Table(self.table_with(|claim| claim.condition.clone()))];
        vec![
            Section::Answer(self.sum()),
            Section::Table(short),
            Section::Details { title: "With whole conditions".into(), sections: whole },
        ]
    }

    fn table(&self) -> Option<Table> {
        Some(self.table_with(|claim| claim.condition.clone()))
    }
}
