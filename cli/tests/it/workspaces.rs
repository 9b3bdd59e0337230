//! Workspaces that the cuDNN of the user's PyTorch names, by a program in place of that Python.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::vramlab;

/// Answers each convolution with workspaces of this many bytes, of which a card may take more for the second.
fn answering(version: u32, bytes: u64) -> String {
    format!(
        "rows=''\nfor row in $(tr -cd ']' | tail -c +2 | sed 's/]/] /g'); do rows=\"$rows,[{bytes},{bytes},{bytes},2]\"; done\n\
         echo \"{{\\\"cudnn\\\":{version},\\\"rows\\\":[${{rows#,}}]}}\"\n"
    )
}

/// An environment of Python, and a folder for what was answered.
struct Environment(tempfile::TempDir);

impl Environment {
    /// Makes an environment whose Python runs this text in place of a program.
    fn new(text: &str) -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        for folder in ["bin", "lib/python3.12/site-packages/torch-2.11.0.dist-info"] {
            fs::create_dir_all(made.0.path().join(folder)).unwrap();
        }
        fs::write(made.0.path().join("pyvenv.cfg"), "home = /nowhere\n").unwrap();
        made.replace(text);
        made
    }

    fn replace(&self, text: &str) {
        let python = self.0.path().join("bin/python");
        fs::write(&python, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn answers(&self) -> PathBuf {
        self.0.path().join("cache/vramlab/cudnn-torch-2.11.0-sm90.json")
    }

    /// Predicts a training of a small network; `bytes`: memory for tensors.
    fn predict(&self, bytes: u64, more: &[&str]) -> (Option<i32>, Value, String) {
        self.run("predict", bytes, &[&["--batch", "13"], more].concat())
    }

    /// Finds the largest batch of the same network.
    fn fit(&self, bytes: u64, more: &[&str]) -> (Option<i32>, Value, String) {
        self.run("fit", bytes, more)
    }

    fn run(&self, command: &str, bytes: u64, more: &[&str]) -> (Option<i32>, Value, String) {
        let gpu = format!("{bytes}B");
        let words = [command, "--model", "resnet18", "--gpu", &gpu, "--json", "-"];
        let image = if more.contains(&"--image") { &[][..] } else { &["--image", "64"] };
        let mut command = vramlab();
        command.env("VIRTUAL_ENV", self.0.path()).env("XDG_CACHE_HOME", self.0.path().join("cache"));
        let output = command.env_remove("VRAMLAB_ONLY_BUILT_IN").args(words).args(image).args(more).output().unwrap();
        let found = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), found, String::from_utf8(output.stderr).unwrap())
    }
}

/// Memory in which the network's upper figure does not fit.
const LITTLE: u64 = 600 << 20;
/// Memory for some examples with the upper figure.
const SOME: u64 = 1 << 30;
const MUCH: u64 = 40 << 30;
const WORKSPACE: u64 = 3 << 20;
const ASKING: &str = "asking cuDNN of ";

fn sentence(found: &Value) -> &str {
    found["sentence"].as_str().unwrap_or_default()
}

#[test]
fn what_is_in_doubt_is_asked_once() {
    let environment = Environment::new(&answering(91900, WORKSPACE));
    let (_, found, said) = environment.predict(LITTLE, &["--cudnn", "none"]);
    assert!(found["fits"].is_null() && !said.contains(ASKING) && !environment.answers().exists(), "{said}");
    let (code, found, said) = environment.predict(LITTLE, &[]);
    assert!(code == Some(0) && said.contains(ASKING) && sentence(&found).starts_with("Yes: "), "{said} {found}");
    let bound = &found["with_cudnn"];
    let bytes = |name: &str| bound[name].as_u64().unwrap();
    assert_eq!((bytes("workspace_bytes"), bytes("cudnn_version")), (WORKSPACE, 91900));
    assert!(bytes("expected_bytes") > WORKSPACE && bytes("expected_bytes") < bytes("upper_bytes"));
    assert!(bytes("upper_bytes") <= LITTLE, "{bound}");
    assert!(!found["warnings"].to_string().contains("cudnn.enabled = False"), "{}", found["warnings"]);
    environment.replace("exit 9\n");
    let (_, again, said) = environment.predict(LITTLE, &[]);
    assert_eq!((&again["with_cudnn"], said.contains(ASKING)), (bound, false));
    let (_, unused, _) = environment.predict(LITTLE, &["--cudnn", "none"]);
    assert!(unused["with_cudnn"]["expected_bytes"].is_null(), "{unused}");
}

#[test]
fn what_is_not_in_doubt_is_asked_only_on_demand() {
    let environment = Environment::new(&answering(91900, WORKSPACE));
    let (_, found, said) = environment.predict(MUCH, &[]);
    assert!(
        found["fits"] == true && found["with_cudnn"]["expected_bytes"].is_null() && !said.contains(ASKING),
        "{said}"
    );
    let (_, found, said) = environment.predict(MUCH, &["--cudnn", "ask"]);
    assert!(found["with_cudnn"]["expected_bytes"].is_u64() && said.contains(ASKING), "{said}");
}

#[test]
fn answers_of_another_cudnn_and_damaged_ones_are_replaced() {
    let environment = Environment::new(&answering(91900, WORKSPACE));
    environment.predict(MUCH, &["--cudnn", "ask"]);
    environment.replace(&answering(92000, 0));
    for damaged in ["{", ""] {
        fs::write(environment.answers(), damaged).unwrap();
        let (_, found, said) = environment.predict(MUCH, &["--cudnn", "ask"]);
        assert!(said.contains(ASKING) && found["with_cudnn"]["cudnn_version"] == 92000, "{said}");
        assert_eq!(found["with_cudnn"]["workspace_bytes"], 0);
    }
}

#[test]
fn who_does_not_answer_is_told_and_the_bound_stays() {
    for (text, why) in [
        ("cat >/dev/null; echo '{\"refused\": \"cuDNN 90100 plans only on a card\"}'\n", "plans only on a card"),
        ("cat >/dev/null; echo 'ImportError: no torch' >&2; exit 1\n", "ImportError: no torch"),
        ("exit 0\n", ""),
        ("cat >/dev/null; echo nothing\n", "gave no answer"),
        ("cat >/dev/null; echo '{\"cudnn\": 91900, \"rows\": [[1, 1, 1, 0]]}'\n", "another number of answers"),
    ] {
        let environment = Environment::new(text);
        let (code, found, said) = environment.predict(LITTLE, &[]);
        assert!(code == Some(0) && found["fits"].is_null(), "{said}");
        assert!(said.contains("cuDNN was not asked: ") && said.contains(why), "{text}: {said}");
        let (code, _, said) = environment.predict(LITTLE, &["--cudnn", "ask"]);
        assert!(code == Some(3) && said.contains(why), "{text}: {code:?} {said}");
    }
}

#[test]
fn a_built_in_network_takes_the_python_that_is_asked() {
    let environment = Environment::new(&answering(91900, WORKSPACE));
    let python = environment.0.path().join("bin/python").display().to_string();
    let (_, found, said) = environment.predict(MUCH, &["--cudnn", "ask", "--python", &python]);
    assert!(found["with_cudnn"]["expected_bytes"].is_u64(), "{said}");
    let (code, _, said) = environment.predict(MUCH, &["--python", &python]);
    assert!(code == Some(2) && said.contains("unless --cudnn ask starts it"), "{said}");
}

#[test]
fn the_largest_batch_has_room_for_the_workspaces_that_are_named() {
    let environment = Environment::new(&answering(91900, WORKSPACE));
    let sizes = |found: &Value| ["largest", "largest_without_cudnn"].map(|name| found[name].as_u64().unwrap());
    let (_, bounded, said) = environment.fit(SOME, &["--cudnn", "none"]);
    assert!(!said.contains(ASKING) && bounded["cudnn_version"].is_null(), "{said}");
    let (code, found, said) = environment.fit(SOME, &[]);
    assert!(code == Some(0) && said.contains(ASKING) && found["cudnn_version"] == 91900, "{said}");
    assert!(!said.contains("cudnn.enabled = False") && found["warnings"].as_array().unwrap().is_empty(), "{said}");
    let ([at_least, _], [largest, at_best]) = (sizes(&bounded), sizes(&found));
    assert!(at_least < largest && largest <= at_best && sizes(&bounded)[1] == at_best, "{bounded} {found}");
    // A prediction says the same of it, and of the next one.
    for (batch, fits) in [(largest, true), (largest + 1, false)] {
        let (_, predicted, _) = environment.run("predict", SOME, &["--batch", &batch.to_string(), "--cudnn", "ask"]);
        assert_eq!(predicted["fits"] == true, fits, "{batch}: {predicted}");
    }
    environment.replace("exit 9\n");
    assert_eq!(sizes(&environment.fit(SOME, &[]).1), [largest, at_best]);
}

#[test]
fn the_largest_batch_is_bounded_where_nobody_answers() {
    let environment = Environment::new("cat >/dev/null; echo 'ImportError: no torch' >&2; exit 1\n");
    let (_, bounded, _) = environment.fit(SOME, &["--cudnn", "none"]);
    let (code, found, said) = environment.fit(SOME, &[]);
    assert!(code == Some(0) && said.matches("cuDNN was not asked: ").count() == 1, "{said}");
    assert_eq!(found["largest"], bounded["largest"]);
    assert_eq!(environment.fit(SOME, &["--cudnn", "ask"]).0, Some(3));
}

#[test]
fn answers_stand_beside_tables() {
    // The tables have batches of 32 and none of 13.
    let environment = Environment::new(&answering(91900, WORKSPACE));
    let words = ["--image", "224", "--batches", "32,13", "--cudnn", "ask"];
    let (_, found, said) = environment.run("predict", MUCH, &words);
    assert!(said.contains(ASKING) && found["with_cudnn"]["cudnn_version"] == 91900, "{said} {found}");
}

#[test]
fn answers_without_a_folder_for_them_are_used() {
    let environment = Environment::new(&answering(91900, WORKSPACE));
    fs::write(environment.0.path().join("cache"), "").unwrap();
    let (_, found, said) = environment.fit(SOME, &[]);
    assert!(said.contains(ASKING) && found["cudnn_version"] == 91900, "{said} {found}");
}
