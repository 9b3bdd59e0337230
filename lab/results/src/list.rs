//! The experiments (`vramlab-list-1`).

use std::collections::BTreeMap;

use lab_base::figures::counted;
use lab_base::section::{Cell, Figure, Section, Table};
use lab_experiments::{ALL, Experiment};
use serde::{Deserialize, Serialize};

use super::findings::Findings;

/// Every experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListResult {
    /// Experiments, in the order in which they run.
    pub experiments: Vec<ListedExperiment>,
}

/// An experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedExperiment {
    /// Its name.
    pub name: String,
    /// Its question.
    pub question: String,
    /// Claims that it judges.
    pub claims: Vec<ListedClaim>,
    /// Sizes that can be set, with their meanings.
    pub sizes: BTreeMap<String, String>,
}

/// A claim that an experiment judges.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedClaim {
    /// The claim.
    pub text: String,
    /// Where the claim was found.
    pub source: String,
}

impl Default for ListResult {
    fn default() -> Self {
        Self { experiments: ALL.iter().map(|experiment| ListedExperiment::from_experiment(*experiment)).collect() }
    }
}

impl ListedExperiment {
    fn from_experiment(experiment: &dyn Experiment) -> Self {
        let claims = experiment.claims().iter();
        Self {
            name: experiment.name().into(),
            question: experiment.question().into(),
            claims: claims.map(|claim| ListedClaim { text: claim.text.into(), source: claim.source.into() }).collect(),
            sizes: experiment.sizes().iter().map(|size| (size.name.into(), size.meaning.into())).collect(),
        }
    }

    /// A paragraph per experiment, because a claim does not fit into a column.
    fn sections(&self) -> Vec<Section> {
        let claims = self.claims.iter().map(|claim| format!("- {} [{}]", claim.text, claim.source));
        let figure = |(name, meaning): (&String, &String)| Figure {
            name: format!("--set {name}=…"),
            value: Cell::Text(meaning.clone()),
            note: String::new(),
        };
        let sizes = vec![Section::Figures(self.sizes.iter().map(figure).collect())];
        let mut sections = vec![Section::Heading(self.name.clone()), Section::Note(self.question.clone())];
        sections.extend(claims.map(Section::Note));
        sections.extend(sizes);
        sections
    }
}

impl Findings for ListResult {
    const SCHEMA: &'static str = "vramlab-list-1";

    fn title(&self) -> String {
        format!("{}: vramlab ask NAME", counted(self.experiments.len() as u64, "experiment"))
    }

    fn sections(&self) -> Vec<Section> {
        let row = |one: &ListedExperiment| [one.name.clone(), one.question.clone()].map(Cell::Text).to_vec();
        let list = Table::new("", &["experiment", "question"], self.experiments.iter().map(row).collect());
        let each = self.experiments.iter().flat_map(ListedExperiment::sections).collect();
        vec![
            Section::List(list),
            Section::Note("Claims and sizes: vramlab ask --full.".into()),
            Section::Details { title: "Claims and sizes of each".into(), sections: each },
        ]
    }

    fn table(&self) -> Option<Table> {
        let row = |one: &ListedExperiment| {
            let claims: Vec<&str> = one.claims.iter().map(|claim| claim.text.as_str()).collect();
            [one.name.clone(), one.question.clone(), claims.join("; ")].map(Cell::Text).to_vec()
        };
        let columns = ["experiment", "question", "claims"];
        Some(Table::new("Experiments", &columns, self.experiments.iter().map(row).collect()))
    }
}
