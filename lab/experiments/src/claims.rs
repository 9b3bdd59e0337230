//! List of every claim that an experiment judges: the claim, the article that makes it, the verdict, the deciding number, and the condition.

use serde::{Deserialize, Serialize};

use crate::{Outcome, Verdict};

/// Articles that the laboratory was made for: number, and the beginning of the title.
pub const ARTICLES: [(&str, &str); 4] = [
    ("000", "Does decreasing batch size in PyTorch lead to increased memory reservation?"),
    ("001", "Does PyTorch GPU memory usage increase per batch?"),
    ("002", "The Hidden Relationship: Batch Size and GPU Memory"),
    ("003", "How does changing network parameters affect GPU memory usage in PyTorch?"),
];

/// A claim and its verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckedClaim {
    /// The statement.
    pub claim: String,
    /// Numbers of the articles that make the claim. Empty if the claim comes from elsewhere.
    pub articles: Vec<String>,
    /// Name of the source, such as an article, a paper or an issue.
    pub source: String,
    /// Whether the claim holds, fails, depends, or was not tested.
    pub verdict: Verdict,
    /// If the verdict is "depends": on what, or how far the claim holds, in a few words.
    #[serde(default)]
    pub lead: String,
    /// The number that decides, with its unit.
    pub number: String,
    /// Condition of the verdict, or the reason for it.
    pub condition: String,
    /// Name of the experiment that judged the claim.
    pub experiment: String,
}

/// Returns the numbers of the articles that a source names.
pub fn articles(source: &str) -> Vec<&'static str> {
    ARTICLES.iter().filter(|(_, title)| source.contains(title)).map(|(number, _)| *number).collect()
}

/// Returns the claims of these experiments, sorted by article. Claims that no article makes come last.
pub fn checked(found: &[(&str, &Outcome)]) -> Vec<CheckedClaim> {
    let mut claims: Vec<CheckedClaim> = found.iter().flat_map(|(name, outcome)| check_all(name, outcome)).collect();
    claims.sort_by_key(|claim| claim.articles.first().cloned().unwrap_or_else(|| "later".into()));
    claims
}

fn check_all(experiment: &str, outcome: &Outcome) -> Vec<CheckedClaim> {
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
