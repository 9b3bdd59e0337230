//! `Try`: every change that an answer proposes was run, and its command says the same.

use crate::common::{json, run};
use serde_json::Value;

fn failed(words: &[&str]) -> Value {
    let ran = run(&[words, &["--json", "-"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn entries(found: &Value) -> Vec<Value> {
    found["tries"]["entries"].as_array().unwrap_or_else(|| panic!("{found}")).clone()
}

/// The command of an entry, run.
fn again(entry: &Value) -> Value {
    let words: Vec<&str> = entry["command"].as_str().unwrap().split(' ').collect();
    assert_eq!(words[0], "vramlab");
    json(&words[1..])
}

fn changes(found: &Value) -> Vec<String> {
    entries(found).iter().map(|entry| entry["change"].as_str().unwrap().to_string()).collect()
}

const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 2048,
    "num_attention_heads": 8, "num_hidden_layers": 4, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "transformers_version": "4.51.3"}"#;

#[test]
fn each_change_takes_what_its_command_takes() {
    let gpt2 = ["predict", "--model", "gpt2", "--batch", "8", "--optimizer", "adamw", "--gpu", "8GiB"];
    let found = failed(&gpt2);
    let entries = entries(&found);
    assert!((2..=4).contains(&entries.len()), "{found}");
    for entry in entries {
        let alone = again(&entry);
        assert_eq!((&alone["fits"], &entry["checked"]), (&true.into(), &true.into()), "{entry}");
        assert_eq!(alone["peak"]["bytes"], entry["peak_bytes"], "{entry}");
        assert_eq!(alone["needs"]["reserved_here_bytes"], entry["reserved_bytes"], "{entry}");
        let left = alone["budget_bytes"].as_u64().unwrap() - entry["reserved_bytes"].as_u64().unwrap();
        assert_eq!(entry["left_bytes"], left);
        assert!(!entry["script"].as_str().unwrap().is_empty(), "{entry}");
    }
}

/// Without `--sequence` an example has a usual length: a network's own maximum is more than most people train with.
#[test]
fn a_maximum_that_nobody_asked_for_is_cut_to_a_usual_length() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, LLAMA.replace("embeddings\": 2048", "embeddings\": 131072")).unwrap();
    let file = file.display().to_string();
    let found = json(&["predict", "--model-file", &file, "--batch", "4"]);
    assert_eq!(found["settings"]["sequence"], 2048, "{}", found["premises"]);
    assert!(found["premises"].to_string().contains("default; --sequence N, up to 131 072"), "{}", found["premises"]);
    // Who says how many tokens means it.
    let found = failed(&["predict", "--model-file", &file, "--sequence", "131072", "--batch", "4", "--gpu", "8GiB"]);
    assert!(!changes(&found).iter().any(|change| change.contains("2048 tokens")), "{:?}", changes(&found));
}

#[test]
fn small_changes_come_first_and_none_is_more_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, LLAMA).unwrap();
    let file = file.display().to_string();
    let words = ["predict", "--model-file", &file, "--sequence", "1024", "--batch", "8", "--precision", "fp32"];
    let needs = json(&words)["needs"]["reserved_bytes"].as_u64().unwrap();
    let mut before = usize::MAX;
    for share in [9, 6, 4, 2] {
        let gpu = format!("{}B", needs * share / 10);
        let found = failed(&[&words[..], &["--gpu", &gpu]].concat());
        let changes = changes(&found);
        assert!(!changes.is_empty(), "{share} tenths: {found}");
        let sets: Vec<Vec<&str>> = changes.iter().map(|change| change.split(" + ").collect()).collect();
        for (i, one) in sets.iter().enumerate() {
            let more = sets[..i].iter().any(|smaller| smaller.iter().all(|change| one.contains(change)));
            assert!(!more, "{one:?} has all of one before it: {sets:?}");
        }
        before = before.min(sets[0].len());
        let first = again(&entries(&found)[0]);
        assert_eq!(first["fits"], true);
    }
    assert_eq!(before, 1, "a little too large: one change is enough");
}

#[test]
fn a_plain_yes_has_nothing_to_try_and_no_limit_has_what_saves_most() {
    let gpt2 = ["predict", "--model", "gpt2", "--batch", "8", "--optimizer", "adamw", "--steps", "3"];
    assert_eq!(json(&[&gpt2[..], &["--gpu", "24GiB"]].concat())["tries"], Value::Null);
    let found = json(&gpt2);
    let reserved: Vec<u64> = entries(&found).iter().map(|entry| entry["reserved_bytes"].as_u64().unwrap()).collect();
    assert!(reserved.len() > 2 && reserved.is_sorted(), "{reserved:?}");
    assert!(reserved.iter().all(|bytes| *bytes < found["needs"]["reserved_bytes"].as_u64().unwrap()));
    let first = again(&entries(&found)[0]);
    assert_eq!(first["needs"]["reserved_bytes"], reserved[0]);
}

#[test]
fn a_fit_that_finds_nothing_says_what_would() {
    let found = failed(&["fit", "--model", "gpt2", "--optimizer", "adamw", "--gpu", "3GiB"]);
    assert_eq!(found["largest"], Value::Null);
    let first = &entries(&found)[0];
    let alone = again(first);
    assert_eq!((&alone["fits"], &alone["settings"]["batch"]), (&true.into(), &1.into()));
    // Less than its parameters take: nothing helps, and that is said.
    let found = failed(&["fit", "--model", "gpt2", "--gpu", "100MiB"]);
    assert!(entries(&found).is_empty());
    let order = found["tries"]["order"].as_str().unwrap();
    // Of parameters a gradient each, in float32 or in half of it: 124 million of 4 bytes.
    assert!(order.starts_with("Nothing here makes it fit: parameters and their gradients alone take 4"), "{order}");
}

#[cfg(feature = "cpu")]
#[test]
fn a_training_under_a_limit_is_tried_on_paper_and_goes_through_in_fact() {
    let words = ["train", "--model", "gpt", "--batch", "16", "--backend", "cpu", "--steps", "3", "--memory-limit"];
    let needs = json(&words[..words.len() - 1])["peak"]["reserved_bytes"].as_u64().unwrap();
    let limit = format!("{}B", needs * 8 / 10);
    let found = failed(&[&words[..], &[&limit]].concat());
    for entry in entries(&found) {
        let alone = again(&entry);
        assert_eq!(alone["peak"]["bytes"], entry["peak_bytes"], "{entry}");
        assert_eq!(alone["peak"]["reserved_bytes"], entry["reserved_bytes"], "{entry}");
    }
    assert!(!entries(&found).is_empty());
}
