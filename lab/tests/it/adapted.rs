//! Small networks with adapters on the CPU, beside PyTorch and PEFT (`golden/adapted_losses.json`, made by `scripts/loop/adapted_losses.py`).

use std::ops::ControlFlow;

use backend_cpu::Cpu;
use lab::run::{RunSpec, resolve};
use memcore::Device;
use serde_json::{Value, json};

/// The first 20 losses in float32 are PyTorch's.
#[test]
fn losses_of_adapters_are_pefts() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapted_losses.json");
    let found: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = found["cases"].as_array().unwrap();
    assert!(cases.len() >= 10);
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let theirs: Vec<f64> = case["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
        let mut fields = json!({"optimizer": "adamw", "steps": 20, "lr": 1e-2, "batch": found["batch"]});
        if case["config"].is_object() {
            let config = folder.path().join("config.json");
            std::fs::write(&config, case["config"].to_string()).unwrap();
            fields["model-file"] = json!(config);
            fields["sequence"] = found["sequence"].clone();
        }
        fields.as_object_mut().unwrap().extend(case["fields"].as_object().unwrap().clone());
        let session = resolve(&RunSpec::of_fields(fields.as_object().unwrap()).unwrap(), &[]).unwrap();
        let device = Device::new(Cpu::with_threads(1).unwrap());
        let ours = session.train(&device, &mut |_| ControlFlow::Continue(())).unwrap().losses;
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let far = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max);
        if far >= 1e-5 {
            wrong.push(format!("{name}: {far} away"));
        }
        assert!(ours[0] != ours[19]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
