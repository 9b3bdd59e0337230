//! `predict`: the verdict, the next peaks, the table of techniques.

use crate::common;
use crate::common::{done, fits, json, run};

const GPT2: [&str; 7] = ["predict", "--model", "gpt2", "--batch", "8", "--optimizer", "adamw"];

fn gpt2<'a>(more: &[&'a str]) -> Vec<&'a str> {
    GPT2.iter().copied().chain(more.iter().copied()).collect()
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
    // Without a card there is no answer to whether it fits.
    assert_eq!((&found["fits"], &found["budget_bytes"]), (&serde_json::Value::Null, &serde_json::Value::Null));
}

#[test]
fn a_long_run_says_that_it_looks_for_one_peak_only() {
    let linear = |steps| run(&["predict", "--model", "linear", "--full", "--steps", steps]);
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
    assert_eq!(of("autocast to bfloat16"), alone(&["--precision", "autocast-bf16"]));
    assert_eq!(of("fused attention"), alone(&["--attention", "sdpa"]));
    assert_eq!(of("SGD for AdamW"), alone(&["--optimizer", "sgd"]));
    assert_eq!(of("accumulation 8 × 1"), alone(&["--batch", "1", "--accumulate", "8"]));
    let both = ["--attention", "sdpa", "--precision", "autocast-bf16"];
    assert_eq!(of("autocast to bfloat16 + fused attention"), alone(&both));
}

#[test]
fn a_batch_of_millions_is_not_cut_into_single_examples() {
    let found = json(&["predict", "--model", "mlp", "--batch", "30000000", "--steps", "1"]);
    let names = found["techniques"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str());
    let cut: Vec<&str> = names.filter(|name| name.starts_with("accumulation")).collect();
    assert_eq!(cut, ["accumulation 2 × 15000000", "accumulation 32 × 937500"]);
}

#[test]
fn what_does_not_fit_says_what_it_needs_and_what_would_help() {
    let ran = run(&gpt2(&["--gpu", "8GiB"]));
    assert_eq!(ran.code, Some(1));
    fits(&ran.stdout);
    assert!(ran.stdout.starts_with("No: 17.39 GiB needed (17.24 to 18.21 GiB), 8 GiB available"), "{}", ran.stdout);
    assert!(ran.stdout.lines().count() <= 22, "{}", ran.stdout);
    let whole = run(&gpt2(&["--gpu", "8GiB", "--full"])).stdout;
    assert!(whole.contains("accumulation 8 × 1") && whole.contains(" yes\n"), "{whole}");
    assert_eq!(ran.stderr, "", "a No is an answer, not an error");
    let json: serde_json::Value = serde_json::from_str(&run(&gpt2(&["--gpu", "8GiB", "--json", "-"])).stdout).unwrap();
    assert_eq!(json["fits"], false);
    let unlimited = common::json(&gpt2(&["--steps", "3"]));
    assert_eq!(json["needs"]["allocated_bytes"], unlimited["peak"]["bytes"]);
    let fits =
        |name: &str| json["techniques"].as_array().unwrap().iter().find(|t| t["name"] == name).unwrap()["fits"].clone();
    assert_eq!((fits("accumulation 8 × 1"), fits("fused AdamW")), (true.into(), false.into()));
}

#[test]
fn a_card_states_its_context_and_what_stays_free() {
    let text = done(&gpt2(&["--gpu", "rtx4090"]));
    fits(&text);
    for part in ["Yes: ", "GeForce RTX 4090", "RTX 4090 has 23.52 GiB", "left: gpt2", "At the peak"] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{part}: {text}");
    }
    let tight = done(&gpt2(&["--gpu", "18.2GiB"]));
    assert!(tight.contains("Little is left"), "{tight}");
}

#[cfg(feature = "cpu")]
#[test]
fn on_paper_a_backend_takes_what_it_takes_in_fact() {
    let words = |command: &'static str, more: &[&'static str]| {
        let words = [command, "--model", "simple-cnn", "--batch", "16", "--steps", "2", "--optimizer", "adam"];
        words.iter().chain(more).copied().collect::<Vec<&str>>()
    };
    let dry_runner = json(&words("predict", &["--like", "native:cpu"]));
    let in_fact = json(&words("train", &["--like", "native", "--backend", "cpu"]));
    assert_eq!(dry_runner["steps"], in_fact["steps"]);
    let elsewhere = words("train", &["--like", "native:wgpu", "--backend", "cpu"]);
    if cfg!(feature = "wgpu") {
        assert!(common::refused(2, &elsewhere).contains("this run is on cpu"));
    }
}

#[test]
fn a_card_on_paper_holds_its_context_beside_tensors() {
    let overheads = |card: &str| json(&gpt2(&["--steps", "1", "--gpu", card]))["overheads"].clone();
    let bytes = lab::cards::Card::named("rtx4090").unwrap().context.most_bytes();
    let context = serde_json::json!([{ "name": "context", "bytes": bytes }]);
    assert_eq!(overheads("rtx4090"), serde_json::json!({ "parts": context, "unexplained_bytes": 0 }));
    // A size without a card is the memory for tensors.
    assert_eq!(overheads("24GiB"), serde_json::Value::Null);
}

fn technique<'a>(found: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let all = found["techniques"].as_array().unwrap();
    all.iter().find(|technique| technique["name"] == name).unwrap_or_else(|| panic!("{name}: {all:?}"))
}

fn failed_json(words: &[&str]) -> serde_json::Value {
    let ran = run(&[words, &["--json", "-"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn what_is_missing_is_one_figure_everywhere() {
    let found = failed_json(&gpt2(&["--gpu", "t4"]));
    let missing = found["needs"]["missing_bytes"].as_u64().unwrap();
    let needs = found["needs"]["reserved_bytes"].as_u64().unwrap();
    assert_eq!(missing, needs - found["budget_bytes"].as_u64().unwrap());
    // This is not the request that failed.
    assert!(missing > found["out_of_memory"]["requested_bytes"].as_u64().unwrap(), "{missing}");
    assert_eq!(found["out_of_memory"]["missing_bytes"], missing);
    assert_eq!(technique(&found, "as it is")["missing_bytes"], missing);
    let scan = failed_json(&gpt2(&["-L", "gpu", "t4,rtx4090"]));
    assert_eq!(scan["results"][0]["run"]["out_of_memory"]["missing_bytes"], missing);
    let short = |bytes| format!("no: {} more", lab::figures::short(bytes));
    let table = run(&gpt2(&["-L", "gpu", "t4,rtx4090"]));
    assert_eq!(table.code, Some(1));
    assert!(table.stdout.contains(&short(missing)) && table.stdout.contains(" yes\n"), "{}", table.stdout);
    // The search runs the largest batch that fits and the next one. Batch 8 is among them only if it is one of the two.
    let fit = json(&["fit", "--model", "gpt2", "--optimizer", "adamw", "--gpu", "t4"]);
    let failed = fit["runs"].as_array().unwrap().iter().find(|run| run["fits"] == false).unwrap();
    let size = failed["size"].to_string();
    let alone = failed_json(&gpt2(&["--gpu", "t4", "--batch", &size]));
    assert_eq!(failed["missing_bytes"], alone["needs"]["missing_bytes"], "batch {size}");
}

#[test]
fn what_fits_reserves_no_more_than_there_is() {
    let found = failed_json(&gpt2(&["--gpu", "16GiB", "--steps", "3"]));
    let budget = found["budget_bytes"].as_u64().unwrap();
    let fitting = found["techniques"].as_array().unwrap().iter().filter(|one| one["fits"] == true);
    assert!(
        fitting.clone().count() > 3 && fitting.clone().all(|one| one["reserved_here_bytes"].as_u64() <= Some(budget))
    );
    // The run still fits a card without room for the cache.
    let tight = json(&gpt2(&["--gpu", "17.35GiB", "--steps", "3"]));
    let as_it_is = technique(&tight, "as it is");
    assert!(as_it_is["fits"].is_null(), "a card may reserve more");
    let [here, enough] = ["reserved_here_bytes", "reserved_bytes"].map(|key| as_it_is[key].as_u64().unwrap());
    let budget = tight["budget_bytes"].as_u64().unwrap();
    assert!(here <= budget && budget < enough, "{here} {budget} {enough}");
    let text = done(&gpt2(&["--gpu", "17.35GiB", "--steps", "3"]));
    assert!(text.contains("On a larger card PyTorch would reserve"), "{text}");
}

#[test]
fn full_is_not_called_fragmented() {
    // Four times too large. Still, there are free pieces at the moment of the failure.
    let ran = run(&gpt2(&["--gpu", "4GiB", "--batch", "8"]));
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.stderr, "", "a No is an answer, not an error");
    assert!(words(&ran.stdout).contains("are missing") && !ran.stdout.contains("ragmented"), "{}", ran.stdout);
    assert!(words(&ran.stdout).contains("no allocator setting helps"), "{}", ran.stdout);
}

#[test]
fn where_memory_is_fragmented_segments_that_grow_are_computed() {
    // Exactly the memory of the tensors at the peak.
    let needs = json(&["predict", "--model", "gpt", "--batch", "16", "--steps", "3"])["needs"].clone();
    let allocated = needs["allocated_bytes"].as_u64().unwrap();
    let size = format!("{}B", allocated + 1024);
    let ran = run(&["predict", "--model", "gpt", "--batch", "16", "--steps", "3", "--gpu", &size]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let text = words(&ran.stdout);
    assert!(text.contains("Memory is fragmented: the tensors would fit"), "{text}");
    assert!(text.contains("With expandable_segments:True"), "{text}");
}

#[test]
fn only_what_the_run_did_is_warned_of() {
    let found = json(&gpt2(&["--steps", "1"]));
    assert_eq!(found["warnings"].as_array().unwrap().len(), 0, "{}", found["warnings"]);
    // The warning belongs to the technique in the table.
    let both = technique(&found, "autocast to bfloat16 + fused attention");
    assert!(both["warnings"][0].as_str().unwrap().contains("PyTorch takes cuDNN's"), "{both}");
    let ran = run(&gpt2(&["--steps", "1", "--full"]));
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    let text = words(&ran.stdout);
    assert!(text.contains("with the same optimizer: attention is PyTorch's own"), "{text}");
    assert!(text.contains("without torch.compile"), "{text}");
}

#[test]
fn a_card_that_cannot_be_meant_is_refused_with_one_that_can() {
    let refused = |gpu: &str| common::refused(2, &["predict", "--model", "mlp", "--gpu", gpu]);
    assert!(refused("4091").contains("did you mean a size such as 24GiB?"));
    assert!(refused("24").contains("24GiB"));
    let a100 = refused("a100");
    assert!(a100.contains("'a100-40' or 'a100-80'"), "{a100}");
    assert!(common::refused(2, &["predict", "--model", "mlp", "--memory-limit", "24"]).contains("24GiB"));
}

#[test]
fn cards_say_where_their_figures_are_from() {
    let found = json(&["cards"]);
    assert_eq!(found["schema"], "vramlab-cards-1");
    for card in found["cards"].as_array().unwrap() {
        assert!(!card["total_source"].as_str().unwrap().is_empty(), "{card}");
        assert!(card["context_bytes"].as_u64() >= card["least_context_bytes"].as_u64(), "{card}");
    }
    let text = done(&["cards"]);
    fits(&text);
    assert!(text.contains("rtx3060") && !text.contains("GASDA"), "{text}");
    assert!(done(&["cards", "--full"]).contains("sshan-zhao/GASDA#19"));
}
