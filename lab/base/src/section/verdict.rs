//! What became of a claim.

use serde::{Deserialize, Serialize};

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is so in everything that was measured.
    Holds,
    /// It is not so.
    Fails,
    /// It is so under a condition.
    Depends,
    /// What decides it could not be measured here; the condition says why.
    NotTested,
}

impl Verdict {
    /// In words.
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
    /// The statement, in short.
    pub text: String,
    /// Where it was found.
    pub source: String,
    /// What became of it.
    pub verdict: Verdict,
    /// The answer in a few words, such as `mostly no`; empty where the verdict says it all.
    #[serde(default)]
    pub lead: String,
    /// Under which condition, or why; with the figures that decide.
    pub condition: String,
    /// The number that decides, with its unit; empty where none does.
    #[serde(default)]
    pub number: String,
}
