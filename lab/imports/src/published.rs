//! Networks that only the user's Python builds, known by their names on the hub: `known/published.json` has one repository a line, with the keys of its
//! public configurations that decide memory. A name answers so where neither a file nor a network is there.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::huggingface;

/// Parts of a pipeline that are trained, in the order in which they are looked for.
const TRAINED: [&str; 3] = ["config.json", "transformer/config.json", "unet/config.json"];

/// A repository of the hub.
#[derive(Debug, Deserialize)]
pub struct Published {
    /// Its name here.
    pub name: String,
    /// Names on the hub with the same configurations.
    pub hub: Vec<String>,
    files: BTreeMap<String, Box<RawValue>>,
}

impl Published {
    /// Returns the configuration of the network that is trained: a model's own, or that of a pipeline's part.
    pub fn config_as_data(&self) -> Option<Value> {
        let text = TRAINED.iter().find_map(|part| self.files.get(*part))?;
        serde_json::from_str(text.get()).ok()
    }
}

/// Returns all of them.
pub fn published() -> &'static [Published] {
    static ALL: OnceLock<Vec<Published>> = OnceLock::new();
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/known/published.json"));
    // A test reads the list.
    ALL.get_or_init(|| serde_json::from_str(text).unwrap_or_default())
}

/// Returns the repository with this name: its own, or one on the hub, in any case, also under another owner.
pub fn find(word: &str) -> Option<&'static Published> {
    let is_own = |one: &&Published| one.name.eq_ignore_ascii_case(word);
    let is_meant = |hub: &String| hub.eq_ignore_ascii_case(word);
    let name = word.split_once('/').map(|(_, name)| name);
    let is_called = |hub: &String| {
        hub.split_once('/').is_some_and(|(_, own)| Some(own.to_lowercase()) == name.map(str::to_lowercase))
    };
    let by = |is: &dyn Fn(&String) -> bool| published().iter().find(|one| one.hub.iter().any(is));
    published().iter().find(is_own).or_else(|| by(&is_meant)).or_else(|| by(&is_called))
}

/// Returns the repository that a name on the hub without its owner means, in any case.
pub fn find_without_owner(word: &str) -> Option<&'static Published> {
    let is_called = |hub: &String| hub.split_once('/').is_some_and(|(_, own)| own.eq_ignore_ascii_case(word));
    published().iter().find(|one| one.hub.iter().any(is_called))
}

/// Returns the files of every repository that this program knows, by its name in lower case: those of networks that are built in, too.
pub fn files_by_name() -> Map<String, Value> {
    let mut found = Map::new();
    for one in huggingface::known() {
        let files = json!({ "config.json": one.config_as_data() });
        found.extend(one.hub.iter().map(|hub| (hub.to_lowercase(), files.clone())));
    }
    for one in published() {
        let data = |text: &RawValue| serde_json::from_str(text.get()).unwrap_or_default();
        let files: Map<String, Value> = one.files.iter().map(|(path, text)| (path.clone(), data(text))).collect();
        found.extend(one.hub.iter().map(|hub| (hub.to_lowercase(), Value::Object(files.clone()))));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_means_one_repository_whose_files_are_configurations() {
        let mut seen = BTreeSet::new();
        for one in published() {
            for hub in &one.hub {
                assert!(seen.insert(hub.to_lowercase()), "{hub} twice");
                assert!(huggingface::find(hub).is_none(), "{hub} is built in");
            }
            for (path, text) in &one.files {
                let value: Value = serde_json::from_str(text.get()).unwrap();
                let names = ["model_type", "_class_name"];
                assert!(names.iter().any(|name| value.get(name).is_some()), "{}: {path}", one.name);
            }
        }
        assert!(published().len() > 80);
    }

    #[test]
    fn a_repository_is_found_with_its_owner_or_with_another() {
        for word in ["gemma-2-9b", "google/gemma-2-9b", "Google/Gemma-2-9B", "somebody/gemma-2-9b-it"] {
            assert_eq!(find(word).unwrap().config_as_data().unwrap()["model_type"], "gemma2", "{word}");
        }
        assert!(["gemma-2", "nobody/nothing", ""].iter().all(|word| find(word).is_none()));
        let sdxl = find("stabilityai/stable-diffusion-xl-base-1.0").unwrap();
        assert_eq!(sdxl.config_as_data().unwrap()["_class_name"], "UNet2DConditionModel");
    }

    #[test]
    fn files_of_built_in_networks_are_there_too() {
        let all = files_by_name();
        assert_eq!(all["meta-llama/llama-3.2-1b"]["config.json"]["model_type"], "llama");
        assert_eq!(all["runwayml/stable-diffusion-v1-5"]["vae/config.json"]["_class_name"], "AutoencoderKL");
    }
}
