//! Verdicts on claims.

use serde::{Deserialize, Serialize};

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim is true in everything that was measured.
    Holds,
    /// The claim is false.
    Fails,
    /// The claim is true under a condition.
    Depends,
    /// What decides the claim could not be measured here; the condition says why.
    NotTested,
}

impl Verdict {
    /// The verdict in words.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::Depends => "depends",
            Verdict::NotTested => "not tested",
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The claim, in short.
    pub text: String,
    /// Where the claim was found.
    pub source: String,
    /// Verdict on it.
    pub verdict: Verdict,
    /// The answer in a few words, such as `mostly no`; empty if the verdict says it all.
    #[serde(default)]
    pub lead: String,
    /// The condition, or the reason, with the figures that decide.
    pub condition: String,
    /// The number that decides, with its unit; empty if there is none.
    #[serde(default)]
    pub number: String,
}
