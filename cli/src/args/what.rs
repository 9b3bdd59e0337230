//! What a word names that somebody wants a prediction for: a script, a command, a file, a network of this program, one in the hub's cache.
//!
//! The order is: an existing path, `file.py:name`, a built-in network, the hub's cache on this machine, [`elsewhere`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::absent::absent;
use crate::exit::Failure;
use crate::file_kind::{self, Kind};

/// Something to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A command with its arguments: it is rehearsed.
    Command(Vec<OsString>),
    /// A Python script: it is rehearsed.
    Script(PathBuf),
    /// A file that describes a network: a `config.json`, a `.pt2`, TOML.
    Network(PathBuf),
    /// A file with settings, and the network that it names: a recipe of a trainer, arguments of transformers, or flags in TOML.
    Recipe {
        /// The flag that takes the file.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// The network that it names, if it names one: a folder, or a name on the hub.
        network: Option<String>,
    },
    /// A network of this program.
    BuiltIn(String),
    /// A `config.json` that was downloaded from the hub under this name.
    Hub {
        /// The name there.
        name: String,
        /// The file in the cache.
        config: PathBuf,
    },
    /// What only the user's Python may know: a name on the hub, a class of a library, `file.py:name`.
    ByPython(String),
}

/// Programs that start a training: what follows one is its arguments.
const STARTERS: [&str; 10] =
    ["python", "torchrun", "accelerate", "deepspeed", "uv", "poetry", "conda", "ipython", "env", "bash"];

/// How the address of a model's page on the hub begins.
const HUB: [&str; 2] = ["https://huggingface.co/", "https://hf.co/"];

/// How names of weights end that bitsandbytes has quantized.
const QUANTIZED: &str = "-bnb-4bit";

/// The most of a file that is read to find a name in it. Bytes.
const MOST_READ: u64 = 1 << 20;

/// True for the name of a program that starts trainings.
pub(super) fn is_starter(word: &str) -> bool {
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or(word);
    let plain =
        name.strip_prefix("python").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    plain.is_some() || STARTERS.contains(&name)
}

/// Returns what a word names.
///
/// # Errors
/// A file of which nothing can be predicted, with what to do with it instead; those of [`elsewhere`].
pub(super) fn named(word: &str) -> Result<What, Failure> {
    let page = HUB.iter().find_map(|hub| word.strip_prefix(hub));
    let model = page.map(|rest| rest.split('/').take(2).collect::<Vec<_>>().join("/"));
    let word = model.as_deref().unwrap_or(word);
    let path = Path::new(word);
    if path.exists() {
        return file(path);
    }
    if is_starter(word) {
        return Ok(What::Command(vec![word.into()]));
    }
    if word.contains(".py:") {
        return elsewhere(word);
    }
    if let Some(name) = super::model::named(word) {
        return Ok(What::BuiltIn(name.into()));
    }
    if let Some(config) = lab::any_model::in_hub_cache(word) {
        return Ok(What::Hub { name: word.into(), config });
    }
    if let Some(whole) = word.to_ascii_lowercase().strip_suffix(QUANTIZED).map(|whole| &word[..whole.len()]) {
        return Err(Failure::usage(format!(
            "{word}: its weights are quantized, and vramlab knows the network without that; with adapters: \
             vramlab predict {whole} --lora 16 --load-in-4bit --checkpoint blocks"
        )));
    }
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => Err(Failure::usage(format!(
            "{}; a built-in network needs none: vramlab predict gpt2 --gpu rtx4090",
            absent(path)
        ))),
        Some("py" | "pt2" | "toml" | "yaml" | "yml" | "ipynb") => Err(Failure::usage(absent(path))),
        _ => elsewhere(word),
    }
}

/// Returns what a network is that is neither a file, nor built in, nor in the hub's cache: what the user's Python may know. Nothing here runs Python.
///
/// # Errors
/// A word that names nothing, with what may be meant.
fn elsewhere(word: &str) -> Result<What, Failure> {
    let is_hub_name = word.matches('/').count() == 1 && !word.starts_with(['.', '/', '~']) && !word.ends_with('/');
    let is_class = word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if word.contains(".py:") || word.contains(':') || is_hub_name || is_class || lab::published::find(word).is_some() {
        return Ok(What::ByPython(word.into()));
    }
    let meant = lab::similar::similar(word, super::model::names())
        .map_or(String::new(), |name| format!(" Did you mean {name}?"));
    Err(Failure::usage(format!(
        "{word}: no such file, no built-in network (vramlab info models), not in the Hugging Face cache.{meant} \
         For a network of your own, rehearse its script: vramlab predict train.py"
    )))
}

/// Returns what a file is for a prediction.
fn file(path: &Path) -> Result<What, Failure> {
    if path.is_dir() {
        let config = path.join("config.json");
        return match config.exists() {
            true => file(&config),
            false => Err(Failure::usage(format!(
                "{}: a directory without a config.json; name a script or a file in it",
                path.display()
            ))),
        };
    }
    let ends = |end: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(end));
    if ends("py") {
        return Ok(What::Script(path.into()));
    }
    if ends("ipynb") {
        let script = path.with_extension("py");
        return Err(Failure::usage(format!(
            "{0}: a notebook; make a script of it: jupyter nbconvert --to script {0} && vramlab predict {1}",
            path.display(),
            script.display()
        )));
    }
    if ends("yaml") || ends("yml") {
        return recipe(path);
    }
    if ends("toml") {
        return Ok(if describes_layers(path) { What::Network(path.into()) } else { settings(path) });
    }
    if ends("log") || ends("txt") || ends("md") {
        return Err(Failure::usage(format!(
            "{0}: neither a script nor a network; an out-of-memory message in it is explained by: vramlab open {0}",
            path.display()
        )));
    }
    match Kind::guess(path) {
        Some(Kind::Arguments) => recipe(path),
        Some(Kind::Config | Kind::Exported | Kind::Diffusers) | None => Ok(What::Network(path.into())),
        Some(_) => {
            file_kind::check(path, &[], "a script or a network")?;
            Ok(What::Network(path.into()))
        }
    }
}

fn settings(path: &Path) -> What {
    What::Recipe { flag: "--config", file: path.into(), network: None }
}

/// True if a TOML file describes a network, not flags.
fn describes_layers(path: &Path) -> bool {
    let table = text(path).and_then(|text| text.parse::<toml::Table>().ok());
    // What cannot be read is explained by who reads models.
    table.is_none_or(|table| table.contains_key("layer") || table.contains_key("input"))
}

/// Returns a recipe of a trainer, or arguments of transformers, with the network that they name.
fn recipe(path: &Path) -> Result<What, Failure> {
    if let Some(recipe) = lab::recipes::Recipe::read(path)? {
        return Ok(What::Recipe { flag: "--recipe", file: path.into(), network: recipe.network });
    }
    const KEYS: [&str; 3] = ["model_name_or_path", "base_model", "model_name"];
    let text = text(path).unwrap_or_default();
    let value = |line: &str| {
        let (key, value) = line.trim().split_once(':')?;
        let key = key.trim().trim_matches('"');
        let value = value.split(" #").next().unwrap_or_default().trim().trim_end_matches(',');
        KEYS.contains(&key).then(|| value.trim_matches(['"', '\'']).to_string())
    };
    let network = text.lines().find_map(value).filter(|name| !name.is_empty());
    Ok(What::Recipe { flag: "--hf-args", file: path.into(), network })
}

fn text(path: &Path) -> Option<String> {
    let small = path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MOST_READ);
    small.then(|| std::fs::read_to_string(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_things_in_a_fixed_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let script = write("train.py", "import torch\n");
        let config = write("config.json", "{\"model_type\": \"llama\"}");
        let layers = write("net.toml", "[input]\nshape = [3]\n");
        let flags = write("run.toml", "batch = 4\n");
        let yaml = write("recipe.yaml", "model_name_or_path: gpt2 # small\nper_device_train_batch_size: 4\n");
        let word = |path: &Path| named(path.to_str().unwrap()).unwrap();
        assert_eq!(word(&script), What::Script(script.clone()));
        assert_eq!(word(&config), What::Network(config.clone()));
        assert_eq!(word(folder.path()), What::Network(config), "a folder of a model");
        assert_eq!(word(&layers), What::Network(layers.clone()));
        assert_eq!(word(&flags), What::Recipe { flag: "--config", file: flags, network: None });
        assert_eq!(word(&yaml), What::Recipe { flag: "--hf-args", file: yaml, network: Some("gpt2".into()) });
        let axolotl = write("axolotl.yml", "base_model: gpt2\nmicro_batch_size: 4\n");
        assert_eq!(word(&axolotl), What::Recipe { flag: "--recipe", file: axolotl, network: Some("gpt2".into()) });
        for (word, name) in [
            ("gpt2", "gpt2"),
            ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
            ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
            ("https://huggingface.co/Qwen/Qwen3-30B-A3B/tree/main", "qwen3-30b-a3b"),
        ] {
            assert_eq!(named(word).unwrap(), What::BuiltIn(name.into()));
        }
        assert_eq!(named("python3.12").unwrap(), What::Command(vec!["python3.12".into()]));
        for word in ["models.py:Net", "org/none-of-this-name", "Gemma3ForCausalLM", "timm:vit_base_patch16_224"] {
            assert_eq!(named(word).unwrap(), What::ByPython(word.into()));
        }
        for (word, part) in [
            ("gpt3", "Did you mean gpt"),
            ("nosuch.py", "there is no such file"),
            ("../etc/passwd.txt", "no such file"),
        ] {
            let failure = named(word).unwrap_err();
            assert!(failure.error.to_string().contains(part), "{word}: {}", failure.error);
        }
    }
}
