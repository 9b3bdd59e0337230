//! `--devices`: networks split over several devices.

use crate::common;
use crate::common::{done, fits, json, refused};

use serde_json::Value;

const MLP: [&str; 10] = ["--model", "mlp", "--layers", "4", "--width", "32", "--batch", "32", "--micro-batches", "4"];

fn split(command: &str, devices: &str, more: &[&str]) -> Value {
    let args: Vec<&str> = [command, "--devices", devices].into_iter().chain(MLP).chain(more.iter().copied()).collect();
    json(&args)
}

fn of_each<'a>(run: &'a Value, key: &str) -> Vec<&'a Value> {
    run["devices"].as_array().unwrap().iter().map(|device| &device[key]).collect()
}

#[test]
fn each_device_has_its_account() {
    let run = split("train", "cpu:0,cpu:1", &["--steps", "2"]);
    assert_eq!(run["schema"], "vramlab-train-1");
    assert_eq!(of_each(&run, "name"), ["cpu:0", "cpu:1"]);
    assert_eq!(run["losses"].as_array().unwrap().len(), 2);
    assert!(run["reason"].as_str().unwrap().contains("split") && run["device"].is_null());
    assert_eq!(run["settings"]["devices"], "cpu:0,cpu:1");
    assert_eq!(run["settings"]["pipeline-schedule"], "1f1b");
    for device in run["devices"].as_array().unwrap() {
        let categories =
            device["peak"]["by_category"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap());
        assert_eq!(categories.sum::<u64>(), device["peak"]["bytes"].as_u64().unwrap(), "the parts add up");
        assert_eq!(device["steps"].as_array().unwrap().last().unwrap()[0], "end");
        // Two steps of [32, 32] in f32: results one way, gradients the other.
        assert_eq!(device["sent_bytes"], 2 * 4 * 32 * 32);
        assert_eq!(device["received_bytes"], device["sent_bytes"]);
    }
    let whole = json(&[
        "train",
        "--model",
        "mlp",
        "--layers",
        "4",
        "--width",
        "32",
        "--batch",
        "8",
        "--accumulate",
        "4",
        "--steps",
        "1",
        "--backend",
        "cpu",
    ]);
    assert_eq!(run["parameters"], whole["parameters"]);
}

#[test]
fn paper_and_processor_agree_and_schedules_differ() {
    let on = |command, devices, schedule| split(command, devices, &["--steps", "1", "--pipeline-schedule", schedule]);
    for schedule in ["gpipe", "1f1b"] {
        let (here, there) = (on("train", "cpu:0,cpu:1", schedule), on("train", "meta:0,meta:1", schedule));
        assert_eq!(of_each(&here, "steps"), of_each(&there, "steps"), "{schedule}");
        assert!(there["losses"].is_null() && there["reason"].as_str().unwrap().contains("meta"));
    }
    let in_flight = |schedule| -> Vec<Value> {
        of_each(&on("predict", "meta:0,meta:1", schedule), "in_flight").into_iter().cloned().collect()
    };
    assert_eq!(in_flight("gpipe"), [4, 4]);
    assert_eq!(in_flight("1f1b"), [2, 1]);
}

#[test]
fn people_read_a_row_per_device() {
    let text = done(&[
        "train",
        "--devices",
        "meta:0,meta:1,meta:2",
        "--model",
        "gpt",
        "--cut",
        "1,2",
        "--steps",
        "1",
        "--full",
    ]);
    fits(&text);
    for part in ["meta:0", "meta:2", "activation", "sent each other", "2–3"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A network of transformers runs with all techniques at once, over devices and among ranks.
#[test]
fn a_config_json_is_split_and_divided() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json").display().to_string();
    let text =
        r#"{ "model_type": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4 }"#;
    std::fs::write(&config, text).unwrap();
    let network = ["--model-file", &config, "--batch", "8", "--steps", "2"];
    let techniques = ["--checkpoint", "blocks", "--accumulate", "2", "--clip-grad-norm", "1"];
    let together = |first: &[&str]| json(&[first, &network, &techniques].concat());
    let scaled = ["train", "--devices", "cpu:0,cpu:1", "--micro-batches", "2", "--precision", "autocast-fp16"];
    let run = together(&scaled);
    assert_eq!(run["losses"].as_array().unwrap().len(), 2);
    assert_eq!(run["parameters"], 64 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32, "tied weights count once");
    let ranks = together(&["predict", "--data-parallel", "4", "--zero", "3", "--precision", "bf16"]);
    assert_eq!(ranks["parameters"], run["parameters"]);
    for first in [&["train", "--devices", "cpu:0,cpu:1"][..], &["predict", "--data-parallel", "2", "--zero", "3"]] {
        let error = refused(2, &[first, &network, &["--keep", "output"]].concat());
        assert!(error.contains("holds only the loss of a result"), "{error}");
    }
}

#[test]
fn memory_that_runs_out_names_the_device() {
    let error = refused(1, &["train", "--devices", "meta:0,meta:1", "--model", "simple-cnn", "--memory-limit", "8MiB"]);
    assert!(error.contains("on meta:0"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let two = "meta:0,meta:1";
    for (args, part) in [
        (&["train", "--devices", "cpu:0,meta:0"][..], "meta has no values"),
        (&["train", "--devices", "cpu:0,cpu:0"], "named twice"),
        (&["train", "--devices", "meta:0"], "from 2 to 64"),
        (&["train", "--micro-batches", "4"], "--micro-batches: it goes only with devices"),
        (&["train", "--schedule", "gpipe"], "--pipeline-schedule takes it"),
        (&["train", "--devices", two, "--schedule", "input,forward,loss"], "the order of phases is fixed"),
        (&["train", "--devices", two, "--model", "two-layer", "--keep-intermediate"], "several devices"),
        (&["train", "--devices", two, "--backend", "meta"], "--backend: it does not go with devices"),
        (&["train", "--devices", two, "--batch", "10", "--micro-batches", "3"], "they must be equal"),
        (&["train", "--devices", two, "--model", "seq2seq-attention"], "seq2seq-attention cannot be split"),
        (&["train", "--devices", two, "--save", "never.safetensors"], "computes nothing"),
        (&["train", "--devices", "cpu:0,cpu:1", "--load", "/nonexistent/s.safetensors"], "No such file"),
        (&["train", "--devices", "cpu:0,cpu:1", "--cuda-graph"], "no graphs of kernels"),
        (&["train", "--devices", two, "--events", "/nonexistent/e.json"], "the memory of one device"),
        (&["train", "--devices", two, "-L", "batch", "8,16"], "scan:"),
        (&["train", "--devices", "meta:0,meta:1,meta:2", "--model", "linear"], "3 devices for a network of 1 pieces"),
        (&["train", "--devices", two, "--cut", "7", "--model", "mlp"], "--cut"),
        (&["predict", "--devices", "meta:0,cpu:1"], "uses meta devices"),
    ] {
        let error = refused(2, args);
        assert!(error.contains(part) || common::run(args).stderr.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn an_experiment_is_spread_over_named_devices() {
    let run = ["run", "model-parallel", "--set", "batch=32", "--set", "pieces=2"];
    let spread = |devices| json(&[&run[..], &["--devices", devices]].concat());
    let named = spread("meta:0,meta:1,meta:2");
    assert_eq!(named["settings"]["devices"], "meta:0,meta:1,meta:2");
    assert!(named["settings"]["backend"].is_null());
    let rows = |result: &Value| result["rows"].as_array().unwrap().clone();
    let counted = json(&[&run[..], &["--backend", "meta", "--set", "devices=3"]].concat());
    assert_eq!(rows(&named), rows(&counted));
    let refusal = refused(2, &["run", "batch-size", "--devices", "meta:0,meta:1"]);
    assert!(refusal.contains("--devices: batch-size runs on one device"), "{refusal}");
    refused(2, &["run", "model-parallel", "--devices", "meta:0,meta:1", "--set", "devices=3"]);
    refused(2, &["run", "model-parallel", "--devices", "meta:0,meta:1", "--backend", "cpu"]);
    refused(2, &["run", "model-parallel", "--devices", "meta:0"]);
}

#[test]
fn a_split_network_that_does_not_fit_is_a_no_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer.json");
    let words = ["predict", "gpt2", "--batch", "64", "--devices", "meta:0,meta:1", "--gpu", "2GiB"];
    let ran = common::run(&[&words[..], &["--json", file.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("No: out of memory: ") && ran.stdout.contains("on meta:0"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("error:"), "{}", ran.stderr);
    fits(&ran.stdout);
    let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(found["out_of_memory"]["message"].as_str().unwrap().contains("meta:0"), "{found}");
}
