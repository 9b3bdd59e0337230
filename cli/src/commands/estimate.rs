//! An estimate for other programs: JSON to JSON, on a thread of its own, without the terminal. The library for C (`capi`) is made of it.

use std::io::Write;

use lab::results::{EstimateResult, Findings};
use lab::run::RunSpec;
use serde_json::{Map, Value, json};

use super::outcome;
use super::plan::{Plan, dry_runner};
use super::predict::{Asked, answer};
use super::workspaces::Workspaces;
use crate::args::{network_named, usual_release};
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;

/// Stack of the thread. A caller's own may be small.
const STACK: usize = 64 << 20;

/// The longest configuration, and the longest arguments. Bytes.
const LONGEST: usize = 4 << 20;

/// What a training takes, as JSON (`vramlab-estimate-1`).
///
/// `configuration`: a network's name, the path of a file that `vramlab predict` reads, or the text of a `config.json`. `arguments`: an object with
/// fields of a run by name (`{"batch": 4, "sequence": 2048, "gpu": "rtx4090"}`), as `--config` reads them; `_` and `-` are the same there.
///
/// Every problem is a value: `{"error": {"kind": …, "message": …}}`, where `kind` is `usage`, `resource` or `internal`. Threads may call it at once.
/// It starts no process. It reads the configuration's file, which releases of PyTorch and transformers are installed, and what cuDNN answered before.
pub(crate) fn estimate(configuration: &str, arguments: &str) -> String {
    found(configuration, arguments).0.to_string()
}

/// `vramlab estimate`: the same on standard output, and an exit code for a problem.
pub(super) fn run(configuration: &str, arguments: &str, ui: &Ui) -> Result<Code> {
    let (answer, code) = found(configuration, arguments);
    ui.document(format!("{answer}\n").as_bytes())?;
    Ok(code)
}

fn found(configuration: &str, arguments: &str) -> (Value, Code) {
    let (configuration, arguments) = (configuration.to_string(), arguments.to_string());
    let made = std::thread::Builder::new().stack_size(STACK).spawn(move || made(&configuration, &arguments));
    let resource = |kind: &str, message: &str| (problem(kind, message), Code::Device);
    match made.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(found))) if found["fits"] == Value::Bool(false) => (found, Code::Check),
        Ok(Ok(Ok(found))) => (found, Code::Done),
        Ok(Ok(Err(failure))) => (problem(kind(failure.code), &format!("{:#}", failure.error)), failure.code),
        Ok(Err(_)) => resource("internal", "an error of vramlab: please report it with these arguments"),
        Err(error) => resource("resource", &format!("no thread can be started: {error}")),
    }
}

fn problem(kind: &str, message: &str) -> Value {
    json!({ "schema": EstimateResult::SCHEMA, "error": { "kind": kind, "message": message } })
}

fn kind(code: Code) -> &'static str {
    if code == Code::Device { "resource" } else { "usage" }
}

fn made(configuration: &str, arguments: &str) -> Result<Value> {
    for (name, text) in [("configuration", configuration), ("arguments", arguments)] {
        if text.len() > LONGEST {
            return Err(Failure::usage(format!("{name}: more than {} MiB", LONGEST >> 20)));
        }
    }
    let ui = Ui::silent();
    let (spec, _file) = spec(configuration, arguments)?;
    let plan = Plan::dry(&spec, &ui)?;
    let workspaces = Workspaces::without_a_process(&ui)?;
    let runner = dry_runner().with_workspaces_of(&workspaces);
    let asked = Asked { in_full: false, changes: false, steps: outcome::Steps::First };
    let report = answer(&runner, &spec, &plan, asked, None, |steps| outcome::execute(&plan, steps, &ui, None))?;
    let found = EstimateResult::from_run(report.result).ok_or_else(|| Failure::usage("this run has no prediction"))?;
    found.to_json().map_err(|error| Failure::usage(error.to_string()))
}

/// The run, and the file that holds the text of its configuration as long as it is needed.
fn spec(configuration: &str, arguments: &str) -> Result<(RunSpec, Option<tempfile::TempDir>)> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    let given: Map<String, Value> = serde_json::from_str(arguments)
        .map_err(|error| Failure::usage(format!("arguments: not an object of JSON: {error}")))?;
    let mut said: Map<String, Value> = given.into_iter().map(|(name, value)| (name.replace('_', "-"), value)).collect();
    for name in ["model", "model-file"] {
        if said.contains_key(name) {
            return Err(Failure::usage(format!("arguments: {name}: the configuration names the network")));
        }
    }
    said.retain(|_, value| !value.is_null() && *value != Value::Bool(false));
    let mut held = None;
    let (field, value) = if configuration.trim_start().starts_with('{') {
        let cannot = |error: std::io::Error| {
            Failure::new(Code::Device, anyhow::anyhow!("the folder for temporary files: {error}"))
        };
        let folder = tempfile::tempdir().map_err(cannot)?;
        let path = folder.path().join("config.json");
        std::fs::File::create(&path).and_then(|mut file| file.write_all(configuration.as_bytes())).map_err(cannot)?;
        held = Some(folder);
        ("model-file", path.to_string_lossy().into_owned())
    } else if let Some(name) = network_named(configuration) {
        ("model", name.to_string())
    } else if std::path::Path::new(configuration).exists() {
        ("model-file", configuration.to_string())
    } else {
        return Err(Failure::usage(format!(
            "configuration: {configuration:?} is neither a file, nor a network of vramlab (vramlab info models), nor the text of a config.json"
        )));
    };
    said.insert(field.into(), value.into());
    let mut spec = RunSpec::of_fields(&said)?;
    spec.check()?;
    spec.model.usual_release = usual_release(&spec, None)?;
    Ok((spec, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(configuration: &str, arguments: &str) -> Value {
        crate::backends::set(crate::BACKENDS);
        serde_json::from_str(&estimate(configuration, arguments)).unwrap()
    }

    #[test]
    fn the_parts_of_an_estimate_add_up() {
        let found = asked(
            "gpt2",
            r#"{"batch": 2, "sequence": 64, "gpu": "rtx4090", "optimizer_impl": "fused", "optimizer": "adamw"}"#,
        );
        assert_eq!((&found["schema"], &found["fits"]), (&EstimateResult::SCHEMA.into(), &true.into()), "{found}");
        for figure in ["lower_bytes", "expected_bytes", "upper_bytes"] {
            let parts = found["by_category"].as_object().unwrap().values();
            let sum: u64 = parts.map(|part| part[figure].as_u64().unwrap()).sum();
            assert_eq!(sum, found[figure].as_u64().unwrap(), "{figure}: {found}");
        }
    }

    #[test]
    fn a_text_is_a_configuration() {
        let config =
            r#"{"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 100, "n_positions": 64}"#;
        let found = asked(config, r#"{"batch": 1, "sequence": 8}"#);
        assert_eq!(found["fits"], Value::Null, "{found}");
        assert!(found["allocated_bytes"].as_u64().unwrap() > 0);
    }

    #[test]
    fn problems_are_values() {
        for (configuration, arguments, part) in [
            ("no-such-network", "{}", "neither a file"),
            ("gpt2", "[]", "not an object"),
            ("gpt2", "{", "not an object"),
            ("gpt2", r#"{"batch": -1}"#, "batch"),
            ("gpt2", r#"{"bach": 1}"#, "bach"),
            ("gpt2", r#"{"gpu": "no-such-card"}"#, "no card of this name"),
            ("gpt2", r#"{"model": "bert"}"#, "the configuration names the network"),
            ("{\"model_type\": \"unheard_of\"}", "{}", "unheard_of"),
            ("{", "{}", "config.json"),
            ("", "", "neither a file"),
        ] {
            let found = asked(configuration, arguments);
            let message = found["error"]["message"].as_str().unwrap_or_else(|| panic!("{configuration}: {found}"));
            assert!(message.contains(part), "{configuration} {arguments}: {message}");
            assert_eq!(found["error"]["kind"], "usage");
        }
    }

    #[test]
    fn threads_ask_at_once() {
        let one = asked("two-layer", r#"{"batch": 8}"#);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| asked("two-layer", r#"{"batch": 8}"#))).collect();
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), one));
        });
    }
}
