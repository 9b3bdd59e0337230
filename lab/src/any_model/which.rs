//! Whether a model is built in, or needs the user's Python.

use std::path::{Path, PathBuf};

use lab_base::error::Error;
use lab_imports::huggingface::Configuration;
use serde_json::Value;

use super::hub_cache::in_hub_cache;
use crate::run::ModelSpec;

/// Largest file that is looked into.
const MAX_BYTES: u64 = 16 << 20;

/// Endings of files that this program reads itself, whatever is in them.
const OWN: [&str; 2] = ["pt2", "toml"];

/// What a word names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// A file that this program reads itself.
    BuiltIn(PathBuf),
    /// What the user's Python builds: the word, and why this program does not know it, or nothing if it is not a configuration.
    ByPython(String, Option<String>),
}

/// Tells who builds the network of a run, by the word that it names in place of a file. A file of another kind counts as built in: what reads it says what is wrong.
pub fn which(word: &Path, model: &ModelSpec) -> Which {
    let unknown = |path: &Path| unknown(path, model);
    let text = word.display().to_string();
    let by_python = |why| Which::ByPython(text.clone(), why);
    if word.is_dir() {
        let config = word.join("config.json");
        return match unknown(&config) {
            Known::Yes => Which::BuiltIn(config),
            Known::No(why) => by_python(Some(why)),
            Known::NoConfiguration => by_python(None),
        };
    }
    if word.exists() {
        return match unknown(word) {
            Known::No(why) => by_python(Some(why)),
            Known::Yes | Known::NoConfiguration => Which::BuiltIn(word.into()),
        };
    }
    if text.contains(".py:") {
        return by_python(None);
    }
    let ending = word.extension().is_some_and(|ending| ending == "json" || OWN.iter().any(|own| ending == *own));
    if ending || word.is_absolute() || text.starts_with("./") || text.starts_with("../") {
        return Which::BuiltIn(word.into());
    }
    match in_hub_cache(&text).map(|config| (unknown(&config), config)) {
        Some((Known::Yes, config)) => Which::BuiltIn(config),
        Some((Known::No(why), _)) => by_python(Some(why)),
        _ => by_python(None),
    }
}

enum Known {
    Yes,
    No(String),
    NoConfiguration,
}

/// Looks into a file: is it a configuration of a network, and of one that is built in?
fn unknown(path: &Path, model: &ModelSpec) -> Known {
    let is_small = path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_BYTES);
    let value = if is_small { std::fs::read(path).ok() } else { None };
    let value: Option<Value> = value.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(value) = value else { return Known::NoConfiguration };
    let has = |name: &str| value.get(name).is_some();
    if has("_class_name") && has("_diffusers_version") || has("architecture") && !has("model_type") {
        return Known::No("it is of another library".into());
    }
    if !has("model_type") && !has("architectures") {
        return Known::NoConfiguration;
    }
    match model.read(Configuration::File(path)) {
        Ok(_) => Known::Yes,
        Err(error) if is_of_the_loss(&error) => Known::Yes,
        Err(error) => Known::No(error.to_string()),
    }
}

/// True if only `--loss` is wrong, which no Python has either: the network is built in, and its error is the answer.
pub fn is_of_the_loss(error: &Error) -> bool {
    matches!(error, Error::Usage { what, .. } if what == "loss")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::RunSpec;

    #[test]
    fn what_this_program_knows_it_reads_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let bert = r#"{"model_type": "bert", "architectures": ["BertForMaskedLM"]}"#;
        let known = file("known/config.json", bert);
        let other = file("other/config.json", r#"{"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"]}"#);
        let unet = file("unet.json", r#"{"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0"}"#);
        let trace = file("trace.json", r#"{"segments": []}"#);
        for path in [&known, &trace, &folder.path().join("model.pt2"), &folder.path().join("absent.json")] {
            assert_eq!(which(path, &ModelSpec::default()), Which::BuiltIn(path.clone()));
        }
        assert_eq!(
            which(known.parent().unwrap(), &ModelSpec::default()),
            Which::BuiltIn(known.clone()),
            "a folder means its configuration"
        );
        for path in [&other, &other.parent().unwrap().to_path_buf(), &unet] {
            assert!(
                matches!(which(path, &ModelSpec::default()), Which::ByPython(word, Some(_)) if word == path.display().to_string())
            );
        }
        let llama = file("llama.json", r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#);
        let by_trainer = json!({"loss": "chunked", "loop": "trainer", "model-file": &llama});
        let model = RunSpec::of_fields(by_trainer.as_object().unwrap()).unwrap().model;
        assert_eq!(
            which(&llama, &model),
            Which::BuiltIn(llama.clone()),
            "a wrong loss is no reason for another Python"
        );
        for word in ["train.py:make_model", "owner/name-of-nothing", "Gemma3ForCausalLM", "timm:vit_base_patch16_224"] {
            assert_eq!(which(Path::new(word), &ModelSpec::default()), Which::ByPython(word.into(), None));
        }
    }
}
