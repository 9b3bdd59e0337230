//! `plan --example-lengths`: what examples of different lengths need, and when the longest batch comes.

use std::fs;

use serde_json::Value;

use crate::common::{json, refused, run};

/// A small GPT whose examples have 16 to 116 tokens, and one 300.
fn dataset() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lengths.txt");
    let lengths: Vec<String> =
        (1..=400).map(|i| (16 + i * 7 % 101 + if i == 200 { 300 } else { 0 }).to_string()).collect();
    fs::write(&file, lengths.join("\n")).unwrap();
    let path = file.display().to_string();
    (folder, path)
}

fn plan<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    const GPT: [&str; 10] = ["plan", "gpt", "--layers", "2", "--width", "64", "--vocabulary", "300", "--batch", "4"];
    [GPT.as_slice(), &["--example-lengths", file], more].concat()
}

#[test]
fn the_longest_batch_needs_what_its_prediction_says() {
    let (_folder, file) = dataset();
    let found = json(&plan(&file, &["--gpu", "24GiB", "--pack", "512"]));
    assert_eq!((&found["schema"], &found["examples"]), (&"vramlab-plan-lengths-1".into(), &400.into()));
    let orders = found["orders"].as_array().unwrap();
    assert_eq!(orders.len(), 6);
    let longest = found["longest"].to_string();
    let alone = json(&[
        "predict",
        "gpt",
        "--layers",
        "2",
        "--width",
        "64",
        "--vocabulary",
        "300",
        "--batch",
        "4",
        "--lengths",
        &longest,
        "--sequence",
        "512",
    ]);
    assert_eq!(orders[0]["peak_bytes"], alone["needs"]["allocated_bytes"]);
    assert_eq!((&found["too_long"], &found["longest_that_fits"]), (&0.into(), &found["longest"]));
    assert!(orders[0]["reserved_bytes"].as_u64() >= alone["needs"]["reserved_bytes"].as_u64());
}

#[test]
fn a_batch_that_is_too_long_has_its_step() {
    let (_folder, file) = dataset();
    let arguments = plan(&file, &["--gpu", "100MiB"]);
    let found: Value = serde_json::from_str(&run(&[arguments.as_slice(), &["--json", "-"]].concat()).stdout).unwrap();
    assert_eq!((&found["orders"][0]["fits"], &found["too_long"]), (&false.into(), &1.into()));
    // One of 400 examples: it lies in the first half of 100 batches in half of the cases.
    assert_eq!(found["too_long_by"], serde_json::json!([5, 50, 95]));
    let shown = run(&arguments);
    assert_eq!(shown.code, Some(1));
    let text = shown.stdout;
    assert!(text.starts_with("No: the longest batch (4 × "), "{text}");
    assert!(text.replace("\n  ", " ").contains("by batch 50 in 10 of 20"), "{text}");
}

#[test]
fn names_flags_and_files_that_do_not_go_with_it() {
    let (folder, file) = dataset();
    assert!(refused(2, &plan(&file, &["--global-batch", "8", "--gpu", "24GiB"])).contains("--global-batch"));
    let alone = run(&["plan", "gpt", "--pack", "512", "--gpu", "24GiB"]);
    assert!(alone.code == Some(2) && alone.stderr.contains("--example-lengths <FILE>"), "{}", alone.stderr);
    assert!(refused(2, &plan("/no/such/file", &[])).contains("/no/such/file"));
    let broken = folder.path().join("broken.txt");
    fs::write(&broken, "12\nx\n").unwrap();
    assert!(refused(2, &plan(broken.to_str().unwrap(), &[])).contains("number 2 is \"x\""));
    assert!(refused(2, &["plan", "mlp", "--example-lengths", &file]).contains("token"));
}

#[test]
fn without_a_limit_it_says_what_is_reserved() {
    let (_folder, file) = dataset();
    let found: Value = json(&plan(&file, &["--seed", "1"]));
    assert_eq!((&found["budget_bytes"], &found["too_long"]), (&Value::Null, &Value::Null));
}
