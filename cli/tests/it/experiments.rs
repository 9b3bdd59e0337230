//! `run`: the output of each experiment.

use crate::common;
use crate::common::{fits, run};

use serde_json::Value;

fn names() -> Vec<&'static str> {
    lab::experiments::ALL.iter().map(|experiment| experiment.name()).collect()
}

#[test]
fn experiments_report_for_people_and_programs() {
    for name in names() {
        let ran = run(&["run", name, "--backend", "meta", "--seed", "3"]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        fits(&ran.stdout);
        assert!(ran.stdout.lines().count() <= 24, "{name}: {}", ran.stdout);
        let about = lab::experiments::by_name(name).unwrap();
        let first = ran.stdout.lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
        let answer = first.strip_prefix(about.question()).map(str::trim).unwrap_or_default();
        assert!(answer.split('.').next().is_some_and(|answer| !answer.is_empty()), "{name}: {first}");
        let whole = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for claim in about.claims() {
            assert!(whole.contains(claim.text), "{name}: no {}: {}", claim.text, ran.stdout);
        }
        let full = common::done(&["run", name, "--backend", "meta", "--seed", "3", "--full"]);
        fits(&full);
        for part in ["Again: vramlab ask", "--seed 3", "predicted", "residual"] {
            assert!(full.contains(part), "{name}: no {part}: {full}");
        }
        let ran = run(&["run", name, "--backend", "meta", "--json", "-"]);
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&json["schema"], &json["experiment"]), (&"vramlab-experiment-1".into(), &name.into()));
        for key in ["question", "claims", "rows", "settings", "device"] {
            assert!(!json[key].is_null(), "{name}: {key}");
        }
        for claim in json["claims"].as_array().unwrap() {
            assert!(
                ["holds", "fails", "depends", "not-tested"].contains(&claim["verdict"].as_str().unwrap()),
                "{name}: {claim}"
            );
            assert!(claim["text"].is_string() && claim["source"].is_string() && claim["condition"].is_string());
        }
        for row in json["rows"].as_array().unwrap() {
            assert!(row["setting"].is_object() && row["predicted"].is_object() && row["measured"].is_object());
        }
    }
}

#[test]
fn all_of_them_are_a_list() {
    let ran = run(&["run", "all", "--backend", "meta", "--json", "-"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let found: Vec<&str> = json.as_array().unwrap().iter().map(|e| e["experiment"].as_str().unwrap()).collect();
    assert_eq!(found, names());
    let text = common::done(&["run", "all", "--backend", "meta"]);
    fits(&text);
    assert_eq!(text.lines().count(), names().len() + 3, "a line for each: {text}");
}

#[test]
fn predictions_are_counted_where_they_are_closed_forms() {
    let of = |name: &str| common::done(&["run", name, "--backend", "meta"]);
    let sizes = common::json(&["run", "optimizer", "--backend", "meta"]);
    let rows = sizes["rows"].as_array().unwrap().iter().map(|row| row["residual"].as_object().unwrap().len());
    let all: usize = rows.sum();
    assert!(of("optimizer").contains(&format!("{all} predictions, {all} exact.")), "{}", of("optimizer"));
    // The result of a dry run or a replay is printed with the measurement and is not called a prediction.
    assert!(!of("fit").contains("prediction"), "{}", of("fit"));
}

#[test]
fn claims_are_one_table() {
    let json = common::json(&["run", "--claims", "--backend", "meta"]);
    assert_eq!(json["schema"], "vramlab-claims-1");
    let claims = json["claims"].as_array().unwrap();
    let all: usize = lab::experiments::ALL.iter().map(|experiment| experiment.claims().len()).sum();
    assert_eq!(claims.len(), all);
    for claim in claims {
        for key in ["claim", "source", "verdict", "number", "condition", "experiment"] {
            assert!(claim[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {claim}");
        }
    }
    let ran = run(&["run", "--claims", "quantization", "--backend", "meta", "--export-markdown", "-"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("| claim | source | verdict | number | condition |"), "{}", ran.stdout);
    let ran = run(&["run", "--claims", "quantization", "leak", "--backend", "meta"]);
    fits(&ran.stdout);
    let rows =
        ran.stdout.lines().filter(|line| ["holds ", "fails ", "depends "].iter().any(|word| line.starts_with(word)));
    assert_eq!(rows.count(), 4, "a row for each claim: {}", ran.stdout);
    assert!(ran.stdout.contains("4 claims: 2 hold, 1 depend, 1 fail, 0 not tested"), "{}", ran.stdout);
}

#[test]
fn another_network_is_measured_where_the_question_allows_it() {
    for name in ["batch-size", "steady-state", "release", "cache"] {
        let json = common::json(&["run", name, "--model", "mlp", "--backend", "meta"]);
        assert_eq!(json["settings"]["model"], "mlp", "{name}");
        let own = common::json(&["run", name, "--backend", "meta"]);
        assert_ne!(json["rows"], own["rows"], "{name}");
        let predicted = json["rows"].as_array().unwrap().iter().filter(|row| row["predicted"]["peak_bytes"].is_u64());
        assert_eq!(predicted.count(), 0, "{name}: a closed form of another network");
        let text = common::done(&["run", name, "--model", "mlp", "--backend", "meta"]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("--model mlp"), "the command to repeat it: {text}");
    }
    let refusal = common::refused(2, &["run", "leak", "--model", "mlp"]);
    assert!(refusal.contains("leak has networks of its own") && refusal.contains("steady-state"), "{refusal}");
    assert!(common::refused(2, &["run", "cache", "--model", "alexnet"]).contains("alexnet"));
}

#[test]
fn experiments_are_scanned() {
    let words = ["run", "steady-state", "--backend", "meta", "-P", "batch", "32", "128", "-D", "96"];
    let scan = common::json(&[&words[..], &["-L", "like", "native,torch-2.11-sm90"]].concat());
    assert_eq!((&scan["schema"], &scan["interrupted"]), (&"vramlab-experiment-scan-1".into(), &false.into()));
    assert_eq!(scan["parameters"], serde_json::json!(["batch", "like"]));
    let results = scan["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    assert_eq!(results[2]["parameters"], serde_json::json!({ "batch": "128", "like": "native" }));
    // A point equals a single run with the same flags.
    let alone = ["run", "steady-state", "--backend", "meta", "--set", "batch=128", "--like", "native"];
    assert_eq!(results[2]["experiments"][0], common::json(&alone));
    let text = common::done(&words);
    fits(&text);
    assert_eq!(text.matches("holds").count(), 4, "two claims at two points: {text}");
    assert!(common::refused(2, &["run", "leak", "-L", "width", "8,16"]).contains("no size \"width\""));
    assert!(common::refused(2, &["run", "leak", "-L", "colour", "1,2"]).contains("no option --colour"));
    let go_on = common::refused(2, &[&words[..], &["--continue", "scan.json"]].concat());
    assert!(go_on.contains("only scans of train and predict can be continued"), "{go_on}");
}
