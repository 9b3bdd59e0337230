//! Three figures of a process on its card, and where each part is from: in the JSON of every command that answers for a card.

use serde_json::Value;

use crate::common::{json, run};

const TRAINING: [&str; 8] = ["--layers", "2", "--width", "128", "--sequence", "256", "--gpu", "rtx4090"];

fn bytes(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"))
}

/// Checks that the figures are in order, and the sums of parts that each have a source.
fn adds_up(figures: &Value) {
    let names = ["lower_bytes", "expected_bytes", "upper_bytes"];
    let parts = figures["parts"].as_array().unwrap();
    for name in names {
        assert_eq!(parts.iter().map(|part| bytes(part, name)).sum::<u64>(), bytes(figures, name), "{name}: {figures}");
    }
    assert!(names.map(|name| bytes(figures, name)).is_sorted(), "{figures}");
    assert!(parts.iter().any(|part| part["name"] == "CUDA context"), "{figures}");
    assert!(parts.iter().all(|part| !part["source"].as_str().unwrap().is_empty()), "{figures}");
}

fn answer(command: &[&'static str]) -> Value {
    json(&[command, &TRAINING].concat())
}

#[test]
fn a_prediction_has_them() {
    adds_up(&answer(&["predict", "gpt", "--batch", "4"]));
}

#[test]
fn the_largest_size_has_them_and_its_upper_one_fits() {
    let found = answer(&["fit", "--model", "gpt"]);
    adds_up(&found["on_card"]);
    let total = bytes(&found["card"], "total_bytes");
    assert!(bytes(&found["on_card"], "upper_bytes") <= total);
    let largest = found["largest"].to_string();
    let alone = json(&[&["predict", "gpt", "--batch", largest.as_str()][..], &TRAINING].concat());
    assert_eq!(alone["parts"], found["on_card"]["parts"], "{largest}");
}

#[test]
fn each_plan_has_them() {
    let found = answer(&["plan", "gpt", "--global-batch", "64"]);
    let front = found["front"].as_array().unwrap();
    assert!(!front.is_empty());
    front.iter().chain([&found["best"]]).for_each(adds_up);
    let total = bytes(&found["card"], "total_bytes");
    assert!(bytes(&found["best"], "upper_bytes") <= total);
}

#[test]
fn an_estimate_for_another_program_has_them() {
    let text = r#"{"batch": 4, "gpu": "rtx4090"}"#;
    let found = run(&["estimate", "mlp", text]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    adds_up(&found);
}
