//! Networks that this program has by name, besides its own: configurations of transformers, and recorded graphs.

use crate::exported;
use crate::huggingface::{self, Known};
use crate::published;

/// Returns the names, without those on the hub.
pub fn names() -> impl Iterator<Item = &'static str> {
    huggingface::known().iter().map(|one| one.name.as_str()).chain(exported::names())
}

/// Returns the name of the network that a word means: its own name, or one on the hub, in any case.
pub fn name_of(word: &str) -> Option<&'static str> {
    let recorded = || {
        let found = published::find(word).or_else(|| published::find_without_owner(word))?;
        exported::names().find(|name| *name == found.name)
    };
    let known = |found: Option<&'static Known>| found.map(|one| one.name.as_str());
    known(huggingface::find(word)).or_else(recorded).or_else(|| known(huggingface::find_without_owner(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_one_network() {
        for name in exported::names() {
            let hub = &published::find(name).unwrap().hub;
            for word in hub.iter().map(String::as_str).chain([name]) {
                assert_eq!(name_of(word), Some(name), "{word}");
                let without_owner = word.split_once('/').map_or(word, |(_, own)| own);
                assert_eq!(name_of(without_owner), Some(name), "{without_owner}");
            }
        }
        assert_eq!(name_of("Qwen/Qwen2.5-7B-Instruct"), Some("qwen2.5-7b"));
        assert_eq!(name_of("nobody/nothing"), None);
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        all.windows(2).for_each(|two| assert_ne!(two[0], two[1]));
    }
}
