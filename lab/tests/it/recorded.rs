//! Networks that are recorded graphs (`vramlab predict --model NAME`) beside the real PyTorch: the peaks of a rehearsal, at two batches and two lengths, of the
//! first layers of each, and with checkpointing, adapters of PEFT and frozen parameters. `scripts/zoo/record.py truths` and `tuned` make the files.

use std::collections::BTreeMap;
use std::path::Path;

use lab::exported;
use lab::run::{DryRunner, RunSpec};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Truth {
    /// Fields of the run beside its sizes.
    #[serde(default)]
    fields: Map<String, Value>,
    layers: usize,
    batch: usize,
    tokens: usize,
    allocated: u64,
    reserved: u64,
}

/// Networks whose figures are not PyTorch's to the byte, with the share of them by which they may differ. Caches with a window make small tensors on the card,
/// which a graph has as constants. Qwen3 and XLM-RoBERTa have another peak in one of two runs, why is not known.
const NEARLY: &[(&str, [f64; 2])] = &[
    ("gemma-2-2b", [1e-6; 2]),
    ("gemma-3-1b", [3e-4; 2]),
    ("gpt-oss-20b", [1e-6; 2]),
    ("qwen3-30b-a3b", [3e-6; 2]),
    ("starcoder2-3b", [1e-6; 2]),
    ("xlm-roberta-base", [5e-4; 2]),
];

/// The same with changes of a training: shares of allocated and of reserved bytes. Masks and windows of Gemma and gpt-oss are small tensors that a graph has
/// as constants, and the reserved bytes of gpt-oss depend on them. Of the others why the peak is another in one of some runs is not known.
const TUNED_NEARLY: &[(&str, [f64; 2])] = &[
    ("gemma-2-2b", [2e-4, 4e-3]),
    ("gemma-3-1b", [3e-4, 3e-3]),
    ("gpt-oss-20b", [1e-4, 6e-2]),
    ("mixtral-8x7b", [2e-5, 0.0]),
    ("modernbert-base", [3e-6, 0.0]),
    ("smollm3-3b", [1e-4, 0.0]),
    ("starcoder2-3b", [2e-4, 5e-4]),
];

fn truths(file: &str) -> BTreeMap<String, Vec<Truth>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("imports/zoo").join(file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Compares all rows of a file. `nearly`: networks that may differ, with the shares of allocated and reserved bytes.
fn compare(file: &str, nearly: &[(&str, [f64; 2])]) {
    let runner = DryRunner::new(&[], &|| false);
    let mut wrong = Vec::new();
    for (name, truths) in truths(file) {
        let most = nearly.iter().find(|(known, _)| *known == name).map_or([0.0; 2], |(_, shares)| *shares);
        for Truth { fields, layers, batch, tokens, allocated, reserved } in truths {
            let sizes = json!({ "model": name, "layers": layers, "batch": batch, "sequence": tokens, "gpu": "1TiB" });
            let all: Map<String, Value> =
                sizes.as_object().unwrap().clone().into_iter().chain(fields.clone()).collect();
            let found = runner.figures(&RunSpec::of_fields(&all).unwrap()).unwrap();
            for (figure, found, truth, most) in [
                ("allocated", found.allocated_bytes, allocated, most[0]),
                ("reserved", found.reserved_bytes, reserved, most[1]),
            ] {
                if found.abs_diff(truth) as f64 > most * truth as f64 {
                    let fields = Value::Object(fields.clone());
                    wrong.push(format!(
                        "{name}, batch {batch} × {tokens}, {fields}: {found} bytes {figure}, PyTorch {truth}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recorded_networks_take_what_pytorch_takes() {
    compare("truths.json", NEARLY);
}

#[test]
fn with_adapters_and_checkpointing_they_take_what_peft_and_pytorch_take() {
    compare("tuned.json", TUNED_NEARLY);
}

#[test]
fn each_recorded_network_is_compared() {
    for file in ["truths.json", "tuned.json"] {
        let compared: Vec<String> = truths(file).into_keys().collect();
        assert_eq!(compared, exported::names().map(String::from).collect::<Vec<_>>());
        assert!(compared.len() >= 8);
    }
}
