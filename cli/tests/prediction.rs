//! `predict`: the verdict, the next peaks, the table of techniques.

mod common;
use common::{done, fits, json, run};

const GPT2: [&str; 7] = ["predict", "--model", "gpt2", "--batch", "8", "--optimizer", "adamw"];

fn gpt2<'a>(more: &[&'a str]) -> Vec<&'a str> {
    GPT2.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn it_says_what_sets_the_peak_and_what_comes_below() {
    let found = json(&gpt2(&["--steps", "2"]));
    let summits = found["summits"].as_array().unwrap();
    assert!(summits.len() > 2, "{summits:?}");
    assert_eq!(summits[0]["allocated_bytes"], found["peak"]["bytes"]);
    assert_eq!(summits[0]["op"], found["peak"]["op"]);
    let heights: Vec<u64> = summits.iter().map(|s| s["allocated_bytes"].as_u64().unwrap()).collect();
    assert!(heights.windows(2).all(|pair| pair[0] >= pair[1]), "{heights:?}");
    // Without a card there is no verdict.
    assert_eq!((&found["fits"], &found["budget_bytes"]), (&serde_json::Value::Null, &serde_json::Value::Null));
}

#[test]
fn a_long_run_says_that_it_looks_for_one_peak_only() {
    let linear = |steps| run(&["predict", "--model", "linear", "--steps", steps]);
    let (short, long) = (linear("256"), linear("257"));
    assert_eq!((short.code, long.code), (Some(0), Some(0)));
    assert!(!short.stderr.contains("are not looked for"), "{}", short.stderr);
    assert!(long.stderr.contains("the peaks below the highest are not looked for"), "{}", long.stderr);
    let every = json(&["predict", "--model", "linear", "--steps", "257"]);
    assert!(!every["summits"].as_array().unwrap().is_empty());
}

#[test]
fn each_technique_is_what_its_own_flags_predict() {
    let found = json(&gpt2(&["--steps", "3"]));
    let techniques = found["techniques"].as_array().unwrap();
    let of = |name: &str| {
        let found = techniques.iter().find(|t| t["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {techniques:?}"))["peak_bytes"].clone()
    };
    let alone = |flags: &[&str]| json(&gpt2(&[&["--steps", "3"], flags].concat()))["peak"]["bytes"].clone();
    assert_eq!(of("AMP (autocast-bf16)"), alone(&["--precision", "autocast-bf16"]));
    assert_eq!(of("fused attention"), alone(&["--attention", "sdpa"]));
    assert_eq!(of("sgd for adamw"), alone(&["--optimizer", "sgd"]));
    assert_eq!(of("accumulation, 8 × 1"), alone(&["--batch", "1", "--accumulate", "8"]));
    let both = ["--attention", "sdpa", "--precision", "autocast-bf16"];
    assert_eq!(of("AMP (autocast-bf16) + fused attention"), alone(&both));
}

#[test]
fn a_batch_of_millions_is_not_cut_into_single_examples() {
    let found = json(&["predict", "--model", "mlp", "--batch", "30000000", "--steps", "1"]);
    let names = found["techniques"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str());
    let cut: Vec<&str> = names.filter(|name| name.starts_with("accumulation")).collect();
    assert_eq!(cut, ["accumulation, 2 × 15000000", "accumulation, 32 × 937500"]);
}

#[test]
fn what_does_not_fit_says_what_it_needs_and_what_would_help() {
    let ran = run(&gpt2(&["--gpu", "8GiB"]));
    assert_eq!(ran.code, Some(1));
    fits(&ran.stdout);
    assert!(ran.stdout.contains("does not fit into 8 GiB"), "{}", ran.stdout);
    assert!(ran.stdout.contains("accumulation, 8 × 1") && ran.stdout.contains(" yes "), "{}", ran.stdout);
    assert!(ran.stderr.contains("out of memory"), "{}", ran.stderr);
    let json: serde_json::Value = serde_json::from_str(&run(&gpt2(&["--gpu", "8GiB", "--json", "-"])).stdout).unwrap();
    assert_eq!(json["fits"], false);
    let unlimited = common::json(&gpt2(&["--steps", "3"]));
    assert_eq!(json["needs"]["allocated_bytes"], unlimited["peak"]["bytes"]);
    let fits =
        |name: &str| json["techniques"].as_array().unwrap().iter().find(|t| t["name"] == name).unwrap()["fits"].clone();
    assert_eq!((fits("accumulation, 8 × 1"), fits("fused optimizer")), (true.into(), false.into()));
}

#[test]
fn a_card_states_its_context_and_what_stays_free() {
    let text = done(&gpt2(&["--gpu", "rtx4090"]));
    fits(&text);
    for part in ["It fits into GeForce RTX 4090 (23.52 GiB", "CUDA context", "stay free", "The peak is"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tight = done(&gpt2(&["--gpu", "17.5GiB"]));
    assert!(tight.contains("That is little"), "{tight}");
}

#[cfg(feature = "cpu")]
#[test]
fn on_paper_a_backend_takes_what_it_takes_in_fact() {
    let words = |command: &'static str, more: &[&'static str]| {
        let words = [command, "--model", "simple-cnn", "--batch", "16", "--steps", "2", "--optimizer", "adam"];
        words.iter().chain(more).copied().collect::<Vec<&str>>()
    };
    let on_paper = json(&words("predict", &["--like", "native:cpu"]));
    let in_fact = json(&words("train", &["--like", "native", "--backend", "cpu"]));
    assert_eq!(on_paper["steps"], in_fact["steps"]);
    let elsewhere = words("train", &["--like", "native:wgpu", "--backend", "cpu"]);
    if cfg!(feature = "wgpu") {
        assert!(common::refused(2, &elsewhere).contains("this run is on cpu"));
    }
}

#[test]
fn a_card_on_paper_holds_its_context_beside_tensors() {
    let overheads = |card: &str| json(&gpt2(&["--steps", "1", "--gpu", card]))["overheads"].clone();
    let context = serde_json::json!([{ "name": "context", "bytes": lab::cards::CONTEXT_BYTES }]);
    assert_eq!(overheads("rtx4090"), serde_json::json!({ "parts": context, "unexplained_bytes": 0 }));
    // A size alone is the memory that is there for tensors.
    assert_eq!(overheads("24GiB"), serde_json::Value::Null);
}
