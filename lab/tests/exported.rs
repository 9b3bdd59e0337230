//! Networks that PyTorch exported, beside what the real PyTorch takes when it trains the exported program (`golden/exported`, made by
//! `scripts/export/record.py`): every row and column at two batches.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lab::exported::{self, LossName};
use lab::models::Architecture;
use lab::record::{COLUMNS, Row};
use lab::training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};
use serde::Deserialize;

mod archives;

#[derive(Deserialize)]
struct Recording {
    loss: String,
    columns: Vec<String>,
    runs: BTreeMap<usize, Vec<Row>>,
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/golden/exported/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn device() -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    Device::builder(Arc::new(Meta::new(card))).profile(Profile::torch_2_11(90)).build()
}

/// Our rows of an export, without the last one, `end`.
fn rows(path: &Path, loss: Option<LossName>, batch: usize) -> Vec<Row> {
    let model = exported::load(path, loss).unwrap();
    let settings = RunSettings::new(batch, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let result = exported::train_from(&model, &device(), &settings, source, &mut Continuation::default(), progress);
    let mut rows = result.unwrap().rows;
    rows.pop();
    rows
}

/// Every row and column that differs, of all batches.
fn differences(name: &str) -> Vec<String> {
    let recording: Recording = serde_json::from_slice(&read(&format!("{name}.json"))).unwrap();
    assert_eq!(recording.columns, COLUMNS);
    assert!(recording.runs.len() >= 2);
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&read(&format!("{name}.pt2.gz")), folder.path(), name);
    let loss = (recording.loss != "inside").then(|| recording.loss.parse().unwrap());
    let mut differences = Vec::new();
    for (batch, theirs) in &recording.runs {
        let ours = rows(&path, loss, *batch);
        let labels = |rows: &[Row]| rows.iter().map(|row| row.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(&ours), labels(theirs), "{name}, batch {batch}");
        for (ours, theirs) in ours.iter().zip(theirs) {
            for (i, (ours_now, theirs_now)) in ours.figures().into_iter().zip(theirs.figures()).enumerate() {
                if ours_now != theirs_now {
                    let column = COLUMNS[i + 1];
                    differences
                        .push(format!("batch {batch}, {}: {column} {ours_now}, PyTorch {theirs_now}", ours.label));
                }
            }
        }
    }
    differences
}

macro_rules! equal {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            let differences = differences($name);
            assert!(differences.is_empty(), "{}:\n{}", $name, differences.join("\n"));
        }
    )*};
}

equal! {
    an_mlp: "mlp";
    a_small_cnn: "cnn";
    a_resnet_written_by_hand: "resnet";
    resnet50_of_torchvision: "resnet50";
    a_u_net_with_transposed_convolutions: "unet";
    a_u_net_with_nearest_neighbours: "unet-nearest";
    a_variational_autoencoder: "vae";
    nanogpt: "nanogpt";
    nanogpt_with_fused_attention: "nanogpt-fused";
    gpt2_of_transformers: "gpt2";
    llama_of_transformers: "llama";
    bert_of_transformers: "bert";
    a_vision_transformer_of_torchvision: "vit";
    mobilenet_v3_of_torchvision: "mobilenet-v3";
    shufflenet_of_torchvision: "shufflenet";
}

#[test]
fn a_batch_beyond_the_exports_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&read("mlp.pt2.gz"), folder.path(), "mlp");
    let model = exported::load(&path, None).unwrap();
    model.check(65_536, memcore::DType::F32).unwrap();
    let error = model.check(65_537, memcore::DType::F32).unwrap_err().to_string();
    assert_eq!(error, "batch: 65537: the file was exported for batches from 1 to 65536");
}

#[derive(Deserialize)]
struct Losses {
    batch: usize,
    losses: BTreeMap<String, Vec<f64>>,
}

/// The weights and the graph of the file, computed on the CPU, give the losses that PyTorch gave, step by step.
#[test]
fn training_on_the_cpu_gives_pytorchs_losses() {
    let recorded: Losses = serde_json::from_slice(&read("losses.json")).unwrap();
    assert_eq!(recorded.losses.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for (name, theirs) in &recorded.losses {
        let path = archives::unpacked(&read(&format!("{name}-weights.pt2.gz")), folder.path(), name);
        let model = exported::load(&path, None).unwrap();
        let device = Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
        let settings =
            RunSettings::new(recorded.batch, theirs.len(), OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
        let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
        let result = exported::train_from(&model, &device, &settings, source, &mut Continuation::default(), progress);
        let ours = result.unwrap().losses;
        assert_eq!(ours.len(), 20);
        for (step, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert!((ours - theirs).abs() < 1e-4, "{name}, step {step}: {ours}, PyTorch {theirs}");
        }
    }
}

#[test]
fn the_document_lists_the_operators_that_are_covered() {
    let row = |(group, names): (&str, Vec<&str>)| {
        let names: Vec<String> =
            names.iter().map(|name| format!("`{}`", name.strip_suffix(".default").unwrap_or(name))).collect();
        format!("| {group} | {} |\n", names.join(", "))
    };
    let table: String = exported::covered().map(row).collect();
    let table = format!("<!-- operators -->\n| | |\n|---|---|\n{table}<!-- /operators -->");
    let path = format!("{}/../docs/import.md", env!("CARGO_MANIFEST_DIR"));
    assert!(std::fs::read_to_string(path).unwrap().contains(&table), "docs/import.md should have:\n{table}");
}

/// Noise that is multiplied in place: as many zeros as the probability says, and the rest scaled so that the mean stays.
#[test]
fn dropout_in_place_drops_its_share() {
    let device = Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
    let ones = memcore::Tensor::from_slice(&device, &[4000], &[1.0f32; 4000]).unwrap();
    let kept = memcore::ops::dropout_(&ones, 0.25, true).unwrap().to_vec::<f32>().unwrap();
    let zeros = kept.iter().filter(|value| **value == 0.0).count();
    assert!((850..1150).contains(&zeros), "{zeros}");
    assert!(kept.iter().all(|value| *value == 0.0 || (*value - 4.0 / 3.0).abs() < 1e-6));
    assert_eq!(memcore::ops::dropout_(&ones, 0.25, false).unwrap().numel(), 4000);
}
