//! The engine without a socket.

use super::*;

fn engine(ui: &Ui) -> Engine<'_> {
    crate::backends::set(crate::BACKENDS);
    Engine { files: None, ui }
}

fn asked(ask: &str, spec: Value) -> Value {
    let ui = Ui::plain().silenced();
    let request = json!({ "ask": ask, "spec": spec, "over": "batch" });
    serde_json::from_str(&engine(&ui).answer(&request.to_string())).unwrap()
}

#[test]
fn an_answer_has_a_sentence_a_picture_and_what_repeats_it() {
    let found = asked("predict", json!({ "model": "gpt", "batch": "4", "gpu": "rtx4090" }));
    assert!(found["result"]["sentence"].as_str().unwrap().starts_with("Yes: "), "{}", found["result"]);
    assert!(found["picture"]["moments"]["at"].as_array().unwrap().len() > 100);
    assert_eq!(found["repeat"]["command"], "vramlab predict --model gpt --batch 4 --gpu rtx4090");
    assert_eq!(found["repeat"]["python"], "vramlab.predict(\"gpt\", batch=4, gpu=\"rtx4090\")");
    assert!(found["details"].as_str().unwrap().contains("<details>"));
}

#[test]
fn changes_are_fields_of_the_run_after_them() {
    let found = asked("try", json!({ "model": "mlp", "batch": 32768, "gpu": "150MiB" }));
    let entries = found["tries"]["entries"].as_array().unwrap();
    assert!(!entries.is_empty(), "{found}");
    let after = asked("predict", found["fields"][0].clone());
    assert_eq!(after["result"]["fits"], true, "{}", after["result"]["sentence"]);
    assert_eq!(after["result"]["needs"]["allocated_bytes"], entries[0]["peak_bytes"]);
}

#[test]
fn a_run_of_several_cards_says_what_each_takes() {
    let small = json!({ "model": "gpt", "batch": 8, "gpu": "rtx4090", "data-parallel": "4", "zero": "2" });
    let found = asked("predict", small.clone());
    let sentence = found["result"]["sentence"].as_str().unwrap_or_else(|| panic!("{found}"));
    assert!(sentence.starts_with("Yes: ") && sentence.ends_with(", ZeRO-2, on each of 4 cards"), "{sentence}");
    assert!(found["picture"]["moments"]["at"].as_array().unwrap().len() > 100);
    let alone = asked("predict", json!({ "model": "gpt", "batch": 8, "gpu": "rtx4090" }));
    let needs = |found: &Value| found["result"]["needs"]["allocated_bytes"].as_u64().unwrap();
    assert!(needs(&found) < needs(&alone), "a rank has a part of the batch and of the states");
    assert_eq!(asked("try", small)["error"], Value::Null);
    assert!(asked("predict", json!({ "model": "gpt", "data-parallel": 1u64 << 40 }))["error"].is_string());
}

#[test]
fn a_picture_has_the_blocks_that_a_curve_leaves_out() {
    let spec = json!({ "model": "mlp", "batch": 4 });
    let [curve, whole] = ["predict", "picture"].map(|ask| asked(ask, spec.clone()));
    let blocks = |found: &Value| found["picture"]["blocks"]["from"].as_array().unwrap().len();
    assert_eq!(blocks(&curve), 0);
    assert!(blocks(&whole) > 20, "{}", blocks(&whole));
    assert_eq!(curve["picture"]["phase_peaks"][0][3], whole["picture"]["phase_peaks"][0][3]);
}

#[test]
fn a_run_is_said_as_arguments_of_transformers() {
    let spec =
        json!({ "model": "qwen3-0.6b", "batch": 4, "sequence": 64, "lora": 16, "precision": "bf16", "gpu": "rtx4090" });
    let found = asked("arguments", spec);
    assert!(found["python"].as_str().is_some_and(|text| text.contains("LoraConfig(\n")), "{found}");
    assert!(
        asked("arguments", json!({ "model": "mlp" }))["why"].as_str().unwrap().contains("networks of transformers")
    );
}

#[test]
fn a_curve_is_of_dry_runs() {
    let found = asked("curve", json!({ "model": "mlp", "batch": 4, "gpu": "rtx4090" }));
    assert!(found["chart"].as_str().unwrap().contains("Peak by batch"), "{found}");
}

#[test]
fn garbage_has_an_error() {
    let ui = Ui::plain().silenced();
    let engine = engine(&ui);
    let wrong = [
        "",
        "null",
        "[]",
        "{",
        "{\"ask\":\"predict\"}",
        "{\"ask\":\"x\",\"spec\":{}}",
        r#"{"ask":"predict","spec":{"model":"gpt","batch":1e300}}"#,
        r#"{"ask":"predict","spec":{"model":"gpt","batch":18446744073709551616}}"#,
        r#"{"ask":"predict","spec":{"model":"gpt","batch":-1}}"#,
        r#"{"ask":"predict","spec":{"model":"../../etc/passwd"}}"#,
        r#"{"ask":"predict","spec":{"model-file":"/etc/passwd"}}"#,
        r#"{"ask":"predict","spec":{"model-file":"1/../../config.json"}}"#,
        r#"{"ask":"predict","spec":{"model":"gpt","data":"/etc"}}"#,
        r#"{"ask":"predict","spec":{"model":"gpt","backend":"cpu"}}"#,
        r#"{"ask":"predict","spec":{"model":"gpt","layers":65000}}"#,
        r#"{"ask":"predict","spec":{"nosuch":1}}"#,
    ];
    for request in wrong {
        let answer: Value = serde_json::from_str(&engine.answer(request)).unwrap();
        assert!(answer["error"].as_str().is_some_and(|text| text.len() > 5), "{request}: {answer}");
    }
}
