//! A network that the user's Python built, and what was chosen to train it.

use lab_base::figures::counted;
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

/// A network without weights, and what was chosen to train it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenNetwork {
    /// What the user named.
    pub name: String,
    /// The library that builds it, with its release.
    pub library: String,
    /// The class that is trained.
    pub class: String,
    /// Why it is that class, if the file names another one; and what goes with it.
    #[serde(default)]
    pub head: String,
    /// The loss.
    #[serde(default)]
    pub loss: String,
    /// Type of the parameters.
    pub dtype: String,
    /// Who chose the type.
    #[serde(default)]
    pub dtype_from: String,
    /// Tokens of an example; null without text.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Who chose them.
    #[serde(default)]
    pub tokens_from: String,
    /// Inputs of a step, which are made up.
    #[serde(default)]
    pub inputs: Vec<ChosenInput>,
    /// What else was left out or made up; one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Number of parameters.
    #[serde(default)]
    pub parameters: u64,
    /// Number of modules that have a number as their name.
    #[serde(default)]
    pub layers: u64,
    /// The program that was rehearsed.
    #[serde(default)]
    pub program: String,
}

/// An input of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenInput {
    /// The argument of the forward pass.
    pub name: String,
    /// Its sizes in words.
    #[serde(default)]
    pub shape: String,
    /// Its type.
    #[serde(rename = "type", default)]
    pub kind: String,
}

impl ChosenNetwork {
    /// What was chosen, in sentences.
    pub(super) fn sections(&self) -> Vec<Section> {
        let inputs: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        let made_up = if inputs.is_empty() { String::new() } else { format!("{} and ", inputs.join(", ")) };
        let text = format!(
            "vramlab trained {} of {} ({}), and made up {made_up}all weights. Loss: {}.",
            self.class,
            self.library,
            counted(self.parameters, "parameter"),
            self.loss
        );
        let mut sections = vec![Section::Note(text)];
        let head = Some(&self.head).filter(|head| !head.is_empty());
        sections.extend(head.into_iter().chain(&self.notes).map(|note| Section::Note(sentence(note))));
        sections
    }

    /// The inputs with their sizes, and the program.
    pub(super) fn details(&self) -> Vec<Section> {
        let row = |input: &ChosenInput| {
            [&input.name, &input.shape, &input.kind].map(|text| Cell::Text(text.clone())).to_vec()
        };
        let table = Table::new("Inputs of a step", &["input", "sizes", "type"], self.inputs.iter().map(row).collect());
        vec![Section::Table(table)]
    }
}

/// A note as a sentence: with a capital letter unless it begins with a name, and a full stop.
fn sentence(note: &str) -> String {
    let mut letters = note.chars();
    let first: String = letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    let word = note.split(' ').next().unwrap_or_default();
    let is_name = word.contains(['_', '.']) || word.chars().skip(1).any(char::is_uppercase);
    let rest = letters.as_str();
    let text = if is_name { note.to_string() } else { format!("{first}{rest}") };
    format!("{}.", text.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_letters() {
        assert_eq!(sentence("a picture of 256 tokens in each text"), "A picture of 256 tokens in each text.");
        assert_eq!(sentence("quantization_config is left out"), "quantization_config is left out.");
    }
}
