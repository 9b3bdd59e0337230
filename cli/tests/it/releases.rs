//! Which release of transformers a `config.json` is counted as: the one that is installed, stored in lock files; never the one that saved the file.

use std::fs;
use std::path::{Path, PathBuf};

use lab::huggingface::REPRESENTED;
use serde_json::{Value, json};

use crate::common::vramlab;

/// A folder with a configuration, and made-up environments of Python.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let config = json!({ "model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 500, "decoder_start_token_id": 0,
            "torch_dtype": "bfloat16", "transformers_version": "4.23.1" });
        fs::write(folder.path("config.json"), config.to_string()).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes an environment in which a release of transformers is installed.
    fn environment(&self, release: &str) -> PathBuf {
        let root = self.path(release);
        fs::create_dir_all(root.join(format!("lib/python3.12/site-packages/transformers-{release}.dist-info")))
            .unwrap();
        fs::write(root.join("pyvenv.cfg"), "home = /nowhere\n").unwrap();
        root
    }

    /// Runs the program in an activated environment; returns its exit code and both streams.
    fn ran(&self, environment: Option<&Path>, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = vramlab();
        if let Some(environment) = environment {
            command.env("VIRTUAL_ENV", environment);
        }
        let output = command.current_dir(self.0.path()).args(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    fn predicted(&self, environment: Option<&Path>, more: &[&str]) -> (u64, Value, Value) {
        let words = [&["predict", "--model-file", "config.json", "--sequence", "32", "--json", "-"], more].concat();
        let mut command = vramlab();
        if let Some(environment) = environment {
            command.env("VIRTUAL_ENV", environment);
        }
        let output = command.current_dir(self.0.path()).args(words).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of_release = |premise: &&Value| premise["name"] == "transformers";
        let premise = found["premises"].as_array().unwrap().iter().find(of_release).unwrap().clone();
        (found["peak"]["bytes"].as_u64().unwrap(), found["settings"].clone(), premise)
    }
}

#[test]
fn the_release_is_the_installed_one_and_the_answer_says_why() {
    let folder = Folder::new();
    let (old, new) = (folder.environment("4.51.3"), folder.environment("5.23.0"));
    let premise = |release: &str, why: &str| json!({ "name": "transformers", "value": format!("transformers {release}"), "source": format!("{why}; 4.23 saved config.json") });
    let newest = REPRESENTED.to_string();
    let (usual, settings, said) = folder.predicted(None, &[]);
    assert_eq!(said, premise(&newest, "the newest known, none is installed"));
    assert_eq!((&settings["transformers"], &settings["precision"]), (&json!(newest), &json!("bf16")));
    let (by_5, settings, said) = folder.predicted(Some(&new), &[]);
    assert_eq!((&settings["transformers"], said), (&json!("5.23"), premise("5.23", "installed for VIRTUAL_ENV")));
    let (by_4, settings, said) = folder.predicted(Some(&old), &[]);
    assert_eq!(said, premise("4.51", "installed for VIRTUAL_ENV"));
    // Release 4 loads float32, and has only written-out attention for this network.
    assert_eq!(settings["precision"], "fp32");
    assert!(by_4 > by_5 && usual > 0, "{by_4} {by_5}");
    let python = new.display().to_string();
    assert_eq!(folder.predicted(Some(&old), &["--python", &python]).2, premise("5.23", "installed for --python"));
    let (flagged, _, said) = folder.predicted(Some(&new), &["--transformers", "4.51"]);
    assert_eq!((flagged, said), (by_4, premise("4.51", "--transformers")));
}

/// A command that repeats the run by another release would need other memory.
#[test]
fn what_to_try_is_predicted_by_the_same_release() {
    let folder = Folder::new();
    let (old, new) = (folder.environment("4.51.3"), folder.environment("5.23.0"));
    let commands = |environment: &Path, more: &[&str]| -> Vec<String> {
        let words = ["predict", "--model-file", "config.json", "--sequence", "32", "--batch", "8", "--json", "-"];
        let output =
            vramlab().env("VIRTUAL_ENV", environment).current_dir(folder.0.path()).args(words).args(more).output();
        let found: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let entries = found["tries"]["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["command"].as_str().unwrap().to_string()).collect()
    };
    let named = commands(&old, &["--python", &new.display().to_string()]);
    assert!(!named.is_empty() && named.iter().all(|command| command.contains("--transformers 5.23")), "{named:?}");
    // The next command finds the activated environment again.
    let found = commands(&new, &[]);
    assert!(!found.is_empty() && !found.iter().any(|command| command.contains("--transformers")), "{found:?}");
}

#[test]
fn a_python_that_is_not_there_is_refused() {
    let folder = Folder::new();
    let words = ["predict", "--model-file", "config.json", "--python", "no-such-folder/python"];
    let (code, out, error) = folder.ran(None, &words);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(error.contains("python: no-such-folder/python is neither an interpreter nor the folder"), "{error}");
    let (code, _, error) = folder.ran(None, &["predict", "--model", "mlp", "--python", "."]);
    assert_eq!(code, Some(2));
    assert!(error.contains("a built-in network needs none"), "{error}");
}

/// A lock file holds the release: it says the same on a machine where another one is installed.
#[test]
fn a_lock_file_keeps_the_release_that_counted() {
    let folder = Folder::new();
    let (old, new) = (folder.environment("4.51.3"), folder.environment("5.23.0"));
    let update = [
        "check",
        "--baseline",
        "lock.json",
        "--update",
        "--model-file",
        "config.json",
        "--sequence",
        "32",
        "--steps",
        "2",
    ];
    assert_eq!(folder.ran(Some(&old), &update).0, Some(0));
    let lock: Value = serde_json::from_str(&fs::read_to_string(folder.path("lock.json")).unwrap()).unwrap();
    assert_eq!(lock["runs"]["default"]["settings"]["transformers"], "4.51");
    for environment in [Some(&*old), Some(&*new), None] {
        let (code, text, error) = folder.ran(environment, &["check", "--baseline", "lock.json", "--strict"]);
        assert_eq!(code, Some(0), "{text} {error}");
        assert!(text.contains("transformers 4.51 (the lock file"), "{text}");
    }
    let (code, text, _) =
        folder.ran(Some(&new), &["check", "--baseline", "lock.json", "--strict", "--transformers", "5.23"]);
    assert_eq!(code, Some(1), "{text}");
}
