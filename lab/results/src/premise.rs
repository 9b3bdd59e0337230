//! Premises of an answer.

use lab_base::section::Section;
use serde::{Deserialize, Serialize};

use super::findings::{Settings, file_name, plain};
use super::technique_words::techniques;

/// A premise: the type, the tokens or the batch, with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Premise {
    /// Name: `network`, `precision`, `tokens`, `batch`, `attention`, `adapters`.
    pub name: String,
    /// Value that was used.
    pub value: String,
    /// Source of the value, and the flag that changes it.
    pub source: String,
}

/// Formats the assumptions of an answer: `vramlab assumes bfloat16 (config.json), 1 024 tokens (--sequence), batch 1 (default, --batch N).`
pub fn line(premises: &[Premise]) -> String {
    let part = |premise: &Premise| format!("{} ({})", premise.value, premise.source.replace("; ", ", "));
    let parts: Vec<String> = premises.iter().map(part).collect();
    if parts.is_empty() { String::new() } else { format!("vramlab assumes {}.", parts.join(", ")) }
}

/// The same line as a section; `None` without premises.
pub(super) fn section(premises: &[Premise]) -> Option<Section> {
    Some(Section::Note(line(premises))).filter(|_| !premises.is_empty())
}

/// The run in a few words: `config.json, LoRA rank 16, batch 4 × 2 048 tokens, bfloat16, adamw`. Values that are not among the premises are left out.
pub(super) fn what(model: &str, premises: &[Premise], settings: &Settings) -> String {
    let value = |name: &str| premises.iter().find(|premise| premise.name == name).map(|premise| premise.value.as_str());
    let setting = |name: &str| settings.get(name).filter(|value| !value.is_null()).map(plain).unwrap_or_default();
    let size: Vec<&str> = [value("batch"), value("tokens")].into_iter().flatten().collect();
    let accumulate = setting("accumulate");
    let parts =
        if matches!(accumulate.as_str(), "" | "1") { String::new() } else { format!(", {accumulate} micro-batches") };
    let rest = [size.join(" × ") + &parts, value("precision").unwrap_or_default().into(), setting("optimizer")];
    let named = std::iter::once(file_name(model).to_string()).chain(techniques(settings)).chain(rest);
    named.filter(|part| !part.is_empty()).collect::<Vec<String>>().join(", ")
}
