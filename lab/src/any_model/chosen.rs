//! What the driver tells: what it chose, or why it refused.

use std::path::PathBuf;

use lab_results::ChosenNetwork;
use serde::Deserialize;

/// Answer of the driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Told {
    /// The network cannot be trained.
    Refused(Refusal),
    /// The network, with its program.
    Chosen(Box<ChosenNetwork>),
}

/// Answer of the driver to the wish for a graph.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Graph {
    /// The network has none.
    Refused {
        /// Why.
        refused: String,
    },
    /// It was written.
    Written {
        /// Where.
        file: PathBuf,
    },
}

impl Graph {
    /// Reads the driver's answer: the last line of a text that is a JSON object of this form.
    pub(super) fn read(text: &str) -> Option<Self> {
        text.lines().rev().find_map(|line| serde_json::from_str(line.trim()).ok())
    }
}

/// Why a network cannot be trained.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// A sentence.
    pub refused: String,
    /// A command that works instead, or a line of code; may be empty.
    #[serde(default)]
    pub instead: String,
}

impl Told {
    /// Reads the driver's answer: the last line of a text that is a JSON object of this form.
    pub fn read(text: &str) -> Option<Self> {
        text.lines().rev().find_map(|line| serde_json::from_str(line.trim()).ok())
    }
}

impl Refusal {
    /// The sentence, and what works instead.
    pub fn in_words(&self) -> String {
        match self.instead.as_str() {
            "" => self.refused.clone(),
            instead => format!("{}; instead: {instead}", self.refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the driver wrote for a `config.json` of Gemma 3 (transformers 5.17.0), and for a name that nothing knows.
    const CHOSEN: &str = r#"{"name": "gemma", "library": "transformers 5.17.0", "class": "Gemma3ForCausalLM", "head": "", "loss": "the class's own, from labels", "dtype": "bfloat16", "dtype_from": "config.json", "tokens": 2048, "tokens_from": "default; --sequence N", "inputs": [{"name": "input_ids", "shape": "batch x tokens", "type": "int64"}], "notes": [], "program": "import torch", "parameters": 999885952, "layers": 26}"#;
    const REFUSED: &str = r#"{"refused": "nothing is called so", "instead": "pip install timm"}"#;

    #[test]
    fn the_last_line_of_the_answer_counts() {
        let Some(Told::Chosen(chosen)) = Told::read(&format!("Loading {{}}\n\n{CHOSEN}\n")) else {
            panic!("an answer")
        };
        assert_eq!(
            (chosen.class.as_str(), chosen.parameters, chosen.tokens),
            ("Gemma3ForCausalLM", 999_885_952, Some(2048))
        );
        assert_eq!(chosen.inputs[0].kind, "int64");
        let Some(Told::Refused(refusal)) = Told::read(REFUSED) else { panic!("a refusal") };
        assert_eq!(refusal.in_words(), "nothing is called so; instead: pip install timm");
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for text in ["", "Killed", "{}", "{\"refused\": 3}", "[1]", "{\"class\": \"A\"}"] {
            assert!(Told::read(text).is_none(), "{text}");
        }
    }
}
