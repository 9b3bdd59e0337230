//! ResNets and VGG beside what torchvision's take in the real PyTorch, row by row and column by column.
//!
//! `golden/vision.json` holds the runs: full-size ones recorded with torchvision 0.26, and a small script with ten classes.

use std::sync::Arc;

use lab::models::{Model, ModelOptions, architecture};
use lab::record::{COLUMNS, Row};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Schedule, Source, Trainer};
use memcore::backend::{DeviceProfile, Meta};
use memcore::profile::Convolution;
use memcore::{DType, Device, Profile};
use serde_json::Value;

fn runs() -> Vec<Value> {
    let path = format!("{}/tests/golden/vision.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn run(name: &str) -> Value {
    runs().into_iter().find(|run| run["name"] == name).unwrap()
}

fn number(run: &Value, key: &str) -> Option<usize> {
    run[key].as_u64().map(|n| n as usize)
}

fn device(run: &Value) -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    let mut profile = Profile::torch_2_11(90);
    if let Some(bytes) = number(run, "cudnn_workspace") {
        profile.convolution = Convolution::Cudnn { workspace_bytes: bytes as u64 };
    }
    Device::builder(Arc::new(Meta::new(card))).profile(profile).build()
}

/// Our rows, with those that the recording does not have merged into the one that is taken after them: `from` phases count as `to`.
fn rows(run: &Value, device: &Device, (from, to): (&str, &str)) -> Vec<Row> {
    let options = ModelOptions { classes: number(run, "classes"), ..ModelOptions::default() };
    let architecture = architecture(run["model"].as_str().unwrap(), &options).unwrap();
    let kind = OptimizerKind::parse(run["optimizer"].as_str().unwrap()).unwrap();
    let steps = run["steps"].as_array().unwrap();
    let settings = RunSettings {
        batch: number(run, "batch").unwrap(),
        steps: steps.iter().filter(|row| row[0].as_str().unwrap().ends_with(".step")).count(),
        optimizer: OptimizerSettings::new(kind, 1e-3),
        accumulate: 1,
        set_to_none: true,
        clip_grad_norm: None,
        dtype: DType::F32,
        // The full-size runs hold a batch as one variable, the small script as two.
        schedule: Schedule { one_batch: number(run, "params").is_some(), ..Schedule::default() },
        seed: 0,
    };
    let source = Source::Synthetic { seed: 0 };
    let mut trainer = Trainer::new(&*architecture, device, &settings, source, "").unwrap();
    for step in 0..settings.steps {
        trainer.step(step).unwrap();
    }
    let mut merged: Vec<Row> = Vec::new();
    for row in trainer.finish(None) {
        let label = row.label.replace(from, to);
        match merged.last_mut().filter(|last| last.label == label) {
            Some(last) => {
                let peak = last.phase_peak_allocated.max(row.phase_peak_allocated);
                *last = Row { label, phase_peak_allocated: peak, ..row };
            }
            None => merged.push(Row { label, ..row }),
        }
    }
    merged
}

/// Fails with every row and column that differs.
fn compare(name: &str, merge: (&str, &str)) {
    let run = run(name);
    let device = device(&run);
    let ours = rows(&run, &device, merge);
    let theirs: Vec<&Value> = run["steps"].as_array().unwrap().iter().filter(|row| row[0] != "end").collect();
    let labels = |row: &Value| row[0].as_str().unwrap().to_owned();
    assert_eq!(
        ours.iter().map(|r| r.label.clone()).collect::<Vec<_>>(),
        theirs.iter().map(|r| labels(r)).collect::<Vec<_>>()
    );
    let mut differences = Vec::new();
    for (ours, theirs) in ours.iter().zip(theirs) {
        for (i, value) in ours.figures().into_iter().enumerate() {
            let recorded = theirs[i + 1].as_u64().unwrap();
            if value != recorded {
                differences.push(format!("{}: {} {value}, PyTorch {recorded}", ours.label, COLUMNS[i + 1]));
            }
        }
    }
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

/// The full-size runs compute the loss with the forward pass.
const WITH_LOSS: (&str, &str) = (".loss", ".forward");

#[test]
fn resnet18_of_ten_classes() {
    compare("f_resnet18_b2_224_adam", (".zero_grad", ".forward"));
}

#[test]
fn resnet18_with_batch_4() {
    compare("resnet18_b4_fp32_sgdm", WITH_LOSS);
}

#[test]
fn resnet50_with_batch_4() {
    compare("resnet50_b4_fp32_adam", WITH_LOSS);
}

#[test]
fn resnet50_with_batch_32_and_cudnn() {
    compare("resnet50_b32_fp32_sgdm_cudnn_ws0", WITH_LOSS);
}

#[test]
fn vgg16_with_batch_4() {
    compare("vgg16_b4_fp32_sgdm", WITH_LOSS);
}

#[test]
fn vgg16_with_batch_32_and_cudnn() {
    compare("vgg16_b32_fp32_sgdm_cudnn_ws0", WITH_LOSS);
}

#[test]
fn parameters_to_the_number() {
    for run in runs() {
        let Some(expected) = number(&run, "params") else { continue };
        let architecture = architecture(run["model"].as_str().unwrap(), &ModelOptions::default()).unwrap();
        let model = Model::build(&*architecture, &device(&run), DType::F32, 0).unwrap();
        assert_eq!(model.parameter_count(), expected as u64, "{}", run["name"]);
    }
}
