//! `run`: each experiment as the program shows it.

mod common;
use common::{fits, run};

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
        for part in [name, "again: vramlab run", "--seed 3", "predicted", "residual"] {
            assert!(ran.stdout.contains(part), "{name}: no {part}: {}", ran.stdout);
        }
        let ran = run(&["run", name, "--backend", "meta", "--json", "-"]);
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&json["schema"], &json["experiment"]), (&"vramlab-experiment-1".into(), &name.into()));
        for key in ["question", "claims", "rows", "settings", "device"] {
            assert!(!json[key].is_null(), "{name}: {key}");
        }
        for claim in json["claims"].as_array().unwrap() {
            assert!(["holds", "fails", "depends"].contains(&claim["verdict"].as_str().unwrap()), "{name}: {claim}");
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
    assert!(ran.stdout.contains("4 claims: 3 hold, 0 depend, 1 fail"), "{}", ran.stdout);
}
