//! Networks that are recorded graphs (`vramlab predict --model NAME`) beside the real PyTorch: the peaks of a rehearsal, at two batches and two lengths, of the
//! first layers of each. `scripts/zoo/record.py truths` makes the file.

use std::collections::BTreeMap;
use std::path::Path;

use lab::exported;
use lab::run::{DryRunner, RunSpec};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Truth {
    layers: usize,
    batch: usize,
    tokens: usize,
    allocated: u64,
    reserved: u64,
}

/// Networks whose figures are not PyTorch's to the byte, with the share of them by which they may differ. Caches with a window make small tensors on the card,
/// which a graph has as constants. Qwen3 and XLM-RoBERTa have another peak in one of two runs, why is not known.
const NEARLY: &[(&str, f64)] = &[
    ("gemma-2-2b", 1e-6),
    ("gemma-3-1b", 3e-4),
    ("gpt-oss-20b", 1e-6),
    ("qwen3-30b-a3b", 3e-6),
    ("starcoder2-3b", 1e-6),
    ("xlm-roberta-base", 5e-4),
];

fn truths() -> BTreeMap<String, Vec<Truth>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("imports/zoo/truths.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn recorded_networks_take_what_pytorch_takes() {
    let runner = DryRunner::new(&[], &|| false);
    let mut wrong = Vec::new();
    for (name, truths) in truths() {
        let least_of = NEARLY.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, share)| *share);
        for Truth { layers, batch, tokens, allocated, reserved } in truths {
            let fields = json!({ "model": name, "layers": layers, "batch": batch, "sequence": tokens, "gpu": "1TiB" });
            let spec = RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
            let found = runner.figures(&spec).unwrap();
            for (figure, found, truth) in
                [("allocated", found.allocated_bytes, allocated), ("reserved", found.reserved_bytes, reserved)]
            {
                if found.abs_diff(truth) as f64 > least_of * truth as f64 {
                    wrong.push(format!("{name}, batch {batch} × {tokens}: {found} bytes {figure}, PyTorch {truth}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_recorded_network_is_compared() {
    let compared: Vec<String> = truths().into_keys().collect();
    assert_eq!(compared, exported::names().map(String::from).collect::<Vec<_>>());
    assert!(compared.len() >= 8);
}
