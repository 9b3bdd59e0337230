//! Networks that this program has by name, besides its own: configurations of transformers, and recorded graphs.

use crate::exported;
use crate::huggingface::{self, Known};

/// Names on the hub of recorded graphs.
const RECORDED: &[(&str, &[&str])] = &[
    ("gemma-2-2b", &["google/gemma-2-2b", "google/gemma-2-2b-it", "unsloth/gemma-2-2b", "unsloth/gemma-2-2b-it"]),
    ("gemma-3-1b", &["google/gemma-3-1b-pt", "google/gemma-3-1b-it", "unsloth/gemma-3-1b-pt", "unsloth/gemma-3-1b-it"]),
    ("glm-4-9b-0414", &["THUDM/GLM-4-9B-0414", "zai-org/GLM-4-9B-0414"]),
    ("gpt-oss-20b", &["openai/gpt-oss-20b", "unsloth/gpt-oss-20b", "unsloth/gpt-oss-20b-BF16"]),
    ("granite-3.3-2b", &["ibm-granite/granite-3.3-2b-base", "ibm-granite/granite-3.3-2b-instruct"]),
    ("mixtral-8x7b", &["mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"]),
    ("modernbert-base", &["answerdotai/ModernBERT-base"]),
    ("olmo-2-7b", &["allenai/OLMo-2-1124-7B", "allenai/OLMo-2-1124-7B-Instruct"]),
    ("qwen3-30b-a3b", &["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-Base", "Qwen/Qwen3-30B-A3B-Instruct-2507"]),
    ("smollm3-3b", &["HuggingFaceTB/SmolLM3-3B", "HuggingFaceTB/SmolLM3-3B-Base"]),
    ("starcoder2-3b", &["bigcode/starcoder2-3b"]),
    ("xlm-roberta-base", &["FacebookAI/xlm-roberta-base"]),
];

/// Returns the names, without those on the hub.
pub fn names() -> impl Iterator<Item = &'static str> {
    huggingface::known().iter().map(|one| one.name.as_str()).chain(exported::names())
}

/// Returns the name of the network that a word means: its own name, or one on the hub, in any case.
pub fn name_of(word: &str) -> Option<&'static str> {
    let recorded = || {
        let is_meant = |hub: &&str| {
            hub.eq_ignore_ascii_case(word) || hub.split('/').nth(1).is_some_and(|name| name.eq_ignore_ascii_case(word))
        };
        let on_hub = || RECORDED.iter().find(|(_, hub)| hub.iter().any(is_meant)).map(|(name, _)| *name);
        exported::names().find(|name| name.eq_ignore_ascii_case(word)).or_else(on_hub)
    };
    let known = |found: Option<&'static Known>| found.map(|one| one.name.as_str());
    known(huggingface::find(word)).or_else(recorded).or_else(|| known(huggingface::find_without_owner(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_one_network() {
        for (name, hub) in RECORDED {
            assert!(exported::is_recorded(name), "{name}");
            for word in hub.iter().chain([name]) {
                assert_eq!(name_of(word), Some(*name), "{word}");
            }
        }
        assert_eq!(name_of("Qwen/Qwen2.5-7B-Instruct"), Some("qwen2.5-7b"));
        assert_eq!(name_of("nobody/nothing"), None);
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        all.windows(2).for_each(|two| assert_ne!(two[0], two[1]));
    }
}
