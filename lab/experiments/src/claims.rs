//! Every claim that an experiment judges, in one list: what is claimed, by which article, the verdict, the number that decides, the condition.

use serde::{Deserialize, Serialize};

use crate::{Outcome, Verdict};

/// The articles that the laboratory was made for: number, and what their titles begin with.
pub const ARTICLES: [(&str, &str); 4] = [
    ("000", "Does decreasing batch size in PyTorch lead to increased memory reservation?"),
    ("001", "Does PyTorch GPU memory usage increase per batch?"),
    ("002", "The Hidden Relationship: Batch Size and GPU Memory"),
    ("003", "How does changing network parameters affect GPU memory usage in PyTorch?"),
];

/// A claim, checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckedClaim {
    /// The statement.
    pub claim: String,
    /// Numbers of the articles that make it; empty when somebody else does.
    pub articles: Vec<String>,
    /// Who makes it.
    pub source: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Where it depends: on what, or how far it is so, in a few words.
    #[serde(default)]
    pub lead: String,
    /// The number that decides, with its unit.
    pub number: String,
    /// Under which condition, or why.
    pub condition: String,
    /// The experiment that judged it.
    pub experiment: String,
}

/// The numbers of the articles that a source names.
pub fn articles(source: &str) -> Vec<&'static str> {
    ARTICLES.iter().filter(|(_, title)| source.contains(title)).map(|(number, _)| *number).collect()
}

/// The claims of these experiments: by article, those of nobody's article last.
pub fn checked(found: &[(&str, &Outcome)]) -> Vec<CheckedClaim> {
    let mut claims: Vec<CheckedClaim> = found.iter().flat_map(|(name, outcome)| of(name, outcome)).collect();
    claims.sort_by_key(|claim| claim.articles.first().cloned().unwrap_or_else(|| "later".into()));
    claims
}

fn of(experiment: &str, outcome: &Outcome) -> Vec<CheckedClaim> {
    let judged = outcome.claims.iter();
    judged
        .map(|judged| CheckedClaim {
            claim: judged.claim.text.into(),
            articles: articles(judged.claim.source).into_iter().map(String::from).collect(),
            source: judged.claim.source.into(),
            verdict: judged.verdict,
            lead: if judged.verdict == Verdict::Depends { judged.lead.into() } else { String::new() },
            number: if judged.number.is_empty() { "–".into() } else { judged.number.clone() },
            condition: judged.condition.clone(),
            experiment: experiment.to_string(),
        })
        .collect()
}
