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

/// What is run, in a few words: `config.json, batch 4 × 2 048 tokens, bfloat16, adamw`. What is not among the premises is left out.
pub(super) fn what(model: &str, premises: &[Premise], accumulate: &str, optimizer: &str) -> String {
    let value = |name: &str| premises.iter().find(|premise| premise.name == name).map(|premise| premise.value.as_str());
    let size: Vec<&str> = [value("batch"), value("tokens")].into_iter().flatten().collect();
    let parts = if matches!(accumulate, "" | "1") { String::new() } else { format!(", {accumulate} micro-batches") };
    let model = model.rsplit(['/', '\\']).next().unwrap_or(model);
    let rest = [size.join(" × ") + &parts, value("precision").unwrap_or_default().into(), optimizer.into()];
    let rest = rest.into_iter().filter(|part| !part.is_empty());
    std::iter::once(model.to_string()).chain(rest).collect::<Vec<String>>().join(", ")
}
