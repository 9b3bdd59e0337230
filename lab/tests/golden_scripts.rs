//! Our rows beside those recorded from the real PyTorch, column by column.

use std::sync::Arc;

use lab::experiments::programs::{KeptActivations, kept_activations};
use lab::models::{ModelOptions, architecture};
use lab::record::Row;
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Schedule, Source, Trainer};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{DType, Device, Profile};

/// One recorded row.
struct Recorded {
    label: String,
    figures: Vec<u64>,
}

fn recorded(name: &str) -> Vec<Recorded> {
    let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let row = |row: &serde_json::Value| Recorded {
        label: row[0].as_str().unwrap().into(),
        figures: row.as_array().unwrap()[1..].iter().map(|v| v.as_u64().unwrap()).collect(),
    };
    file["steps"].as_array().unwrap().iter().map(row).collect()
}

fn device() -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    Device::builder(Arc::new(Meta::new(card))).profile(Profile::torch_2_11(90)).history(true).build()
}

/// Fails with every row and column that differs.
fn compare(name: &str, rows: &[Row]) {
    let recorded = recorded(name);
    let mut differences = Vec::new();
    for (ours, theirs) in rows.iter().zip(&recorded) {
        if ours.label != theirs.label {
            differences.push(format!("label {} where PyTorch's run has {}", ours.label, theirs.label));
        }
        for ((column, ours_value), theirs_value) in
            lab::record::COLUMNS[1..].iter().zip(ours.figures()).zip(&theirs.figures)
        {
            if ours_value != *theirs_value {
                differences.push(format!("{}: {column} {ours_value}, PyTorch {theirs_value}", ours.label));
            }
        }
    }
    assert_eq!(rows.len(), recorded.len(), "{name}: number of rows");
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

fn settings(batch: usize, steps: usize, kind: OptimizerKind, prefix: &str) -> RunSettings {
    RunSettings {
        batch,
        steps,
        optimizer: OptimizerSettings::new(kind, 1e-3),
        accumulate: 1,
        set_to_none: true,
        clip_grad_norm: None,
        dtype: DType::F32,
        schedule: Schedule { prefix: prefix.into(), ..Schedule::default() },
        seed: 0,
    }
}

fn train(device: &Device, model: &str, settings: &RunSettings, tag: &str) -> Vec<Row> {
    let architecture = architecture(model, &ModelOptions::default()).unwrap();
    let source = Source::Synthetic { seed: 0 };
    let mut trainer = Trainer::new(&*architecture, device, settings, source, tag).unwrap();
    for step in 0..settings.steps {
        trainer.step(step).unwrap();
    }
    trainer.finish(None)
}

fn cnn(device: &Device, batch: usize, tag: &str) -> Vec<Row> {
    train(device, "simple-cnn", &settings(batch, 3, OptimizerKind::Adam, "e"), tag)
}

#[test]
fn simple_cnn_with_batch_128() {
    let d = device();
    let mut rows = cnn(&d, 128, "");
    rows.push(Row::take(&d, "end"));
    compare("a_cnn_b128", &rows);
}

#[test]
fn simple_cnn_with_batch_32() {
    let d = device();
    let mut rows = cnn(&d, 32, "");
    rows.push(Row::take(&d, "end"));
    compare("a_cnn_b32", &rows);
}

#[test]
fn simple_cnn_with_batch_128_then_32() {
    let d = device();
    let mut rows = cnn(&d, 128, "b128.");
    rows.push(Row::take(&d, "between"));
    rows.extend(cnn(&d, 32, "b32."));
    rows.push(Row::take(&d, "end"));
    compare("a_cnn_b128_then_b32", &rows);
}

#[test]
fn linear_with_batch_32() {
    let d = device();
    let mut rows = train(&d, "linear", &settings(32, 5, OptimizerKind::Sgd, "s"), "");
    rows.push(Row::take(&d, "end"));
    compare("b_linear", &rows);
}

#[test]
fn kept_activations_leak_and_clearing_them_does_not() {
    for (name, clear) in [("c_leak", false), ("c_leak_cleared", true)] {
        let d = device();
        let mut rows = kept_activations(&d, &KeptActivations { steps: 5, batch: 32, clear, seed: 0 }).unwrap();
        rows.push(Row::take(&d, "end"));
        compare(name, &rows);
    }
}
