//! What an answer rests on.

use lab_base::section::Section;
use serde::{Deserialize, Serialize};

/// The type, the tokens or the batch, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Premise {
    /// What it is: `precision`, `tokens`, `batch`.
    pub name: String,
    /// What was taken.
    pub value: String,
    /// Where that came from, and the flag that takes another.
    pub source: String,
}

/// The line below a verdict: `bfloat16: config.json · 1 024 tokens: --sequence · batch 1: default; --batch N`.
pub fn line(premises: &[Premise]) -> String {
    let parts: Vec<String> = premises.iter().map(|premise| format!("{}: {}", premise.value, premise.source)).collect();
    parts.join(" · ")
}

/// The same as a section; none for no premises.
pub(super) fn section(premises: &[Premise]) -> Option<Section> {
    Some(Section::Note(line(premises))).filter(|_| !premises.is_empty())
}
