//! Configurations that this program knows by name: `known/models.json` has one network a line, with its names on the hub, its published number of parameters,
//! and the keys of its public `config.json` that decide its memory.

use std::path::Path;
use std::sync::OnceLock;

use lab_base::error::Result;
use lab_base::files;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A network that is known by name.
#[derive(Debug, Deserialize)]
pub struct Known {
    /// Its name here.
    pub name: String,
    /// Parameters, as published; tied ones once. Those of FLAN-T5 are fewer: release 5 of transformers shares its output layer with the table of tokens.
    pub parameters: u64,
    /// Names on the hub whose configurations give the same network.
    pub hub: Vec<String>,
    config: Box<RawValue>,
}

impl Known {
    /// The text of its `config.json`.
    pub fn config(&self) -> &str {
        self.config.get()
    }

    /// The same as data.
    pub fn config_as_data(&self) -> Value {
        serde_json::from_str(self.config()).unwrap_or_default()
    }
}

/// Returns all of them, in the order of their families.
pub fn known() -> &'static [Known] {
    static ALL: OnceLock<Vec<Known>> = OnceLock::new();
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/known/models.json"));
    // A test reads the list.
    ALL.get_or_init(|| serde_json::from_str(text).unwrap_or_default())
}

/// Returns the network with this name: its own, or one on the hub with its owner, in any case.
pub fn find(word: &str) -> Option<&'static Known> {
    let is_meant = |one: &&Known| one.hub.iter().chain([&one.name]).any(|name| name.eq_ignore_ascii_case(word));
    known().iter().find(is_meant)
}

/// Returns the network that is called so on the hub, without the owner.
pub fn find_without_owner(word: &str) -> Option<&'static Known> {
    let is_meant = |hub: &String| hub.split_once('/').is_some_and(|(_, name)| name.eq_ignore_ascii_case(word));
    known().iter().find(|one| one.hub.iter().any(is_meant))
}

/// Where a configuration of transformers lies.
#[derive(Clone, Copy, Debug)]
pub enum Configuration<'a> {
    /// In a file.
    File(&'a Path),
    /// In this program.
    Known(&'static Known),
}

impl Configuration<'_> {
    /// Its name, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Known(known) => known.name.clone(),
        }
    }

    /// The text.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn text(&self) -> Result<String> {
        match self {
            Self::File(path) => files::text(path, MAX_BYTES, "a configuration"),
            Self::Known(known) => Ok(known.config().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_network_is_found_by_any_of_its_names() {
        for word in ["llama-3.1-8b", "meta-llama/Llama-3.1-8B", "meta-llama/llama-3.1-8b-instruct", "Llama-3.1-8B"] {
            assert_eq!(find(word).map(|one| one.name.as_str()), Some("llama-3.1-8b"), "{word}");
        }
        assert!(["llama-3.1-9b", "", "meta-llama/", "gpt2"].iter().all(|word| find(word).is_none()));
        assert_eq!(find_without_owner("gpt2").map(|one| one.name.as_str()), Some("gpt2-small"));
    }

    #[test]
    fn names_are_of_one_network_each() {
        let mut seen = BTreeSet::new();
        let all = known();
        assert!(all.len() > 80);
        for name in all.iter().flat_map(|one| std::iter::once(&one.name).chain(&one.hub)) {
            assert!(seen.insert(name.to_ascii_lowercase()), "{name} twice");
        }
    }
}
