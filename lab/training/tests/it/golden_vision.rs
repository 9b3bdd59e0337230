//! Compares ResNets, VGG, MobileNetV2, DenseNet and ConvNeXt with torchvision's in the real PyTorch, in every row and column.
//!
//! `golden/vision.json` holds the runs: full-size ones recorded with torchvision 0.26, a small script with ten classes, and runs of unusual sizes and
//! settings (`checkpoint`: each block, or DenseNet's `memory_efficient`).

use std::sync::Arc;

use lab_models::{Model, ModelOptions, Recompute, architecture};
use lab_training::record::{COLUMNS, Row};
use lab_training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Source, Trainer};
use memcore::backend::{DeviceProfile, Meta};
use memcore::nn::Init;
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
    let mut profile = Profile::torch_2_11(number(run, "sm").unwrap_or(90) as u32);
    if let Some(bytes) = number(run, "cudnn_workspace") {
        profile.convolution = Convolution::Cudnn { workspace_bytes: bytes as u64 };
    }
    Device::builder(Arc::new(Meta::new(card))).profile(profile).build()
}

fn options(run: &Value) -> ModelOptions {
    ModelOptions {
        classes: number(run, "classes"),
        image: number(run, "image"),
        width: number(run, "width"),
        dropout: run["dropout"].as_f64(),
        recompute: if run["checkpoint"] == true { Recompute::Blocks } else { Recompute::None },
        ..ModelOptions::default()
    }
}

fn precision(run: &Value) -> Precision {
    match run["precision"].as_str() {
        Some("autocast") => Precision::AutocastBf16,
        Some("bf16") => Precision::Bf16,
        Some("fp16") => Precision::Fp16,
        Some(other) => panic!("{other}"),
        None => Precision::Fp32,
    }
}

/// Our rows at the points of the recording's.
fn rows(run: &Value, device: &Device, after: &[&str]) -> Vec<Row> {
    let architecture = architecture(run["model"].as_str().unwrap(), &options(run)).unwrap();
    let kind = OptimizerKind::parse(run["optimizer"].as_str().unwrap()).unwrap();
    let recorded = run["steps"].as_array().unwrap();
    let steps = recorded.iter().filter(|row| row[0].as_str().unwrap().ends_with(".step")).count();
    let batch = number(run, "batch").unwrap();
    let optimizer = OptimizerSettings::new(kind, 1e-3);
    let mut settings = RunSettings { precision: precision(run), ..RunSettings::new(batch, steps, optimizer) };
    let after: Vec<String> = after.iter().map(ToString::to_string).collect();
    settings.schedule = settings.schedule.with_rows(&after).unwrap();
    // The full-size runs hold a batch as one variable, the small script as two.
    settings.schedule.one_batch = number(run, "params").is_some();
    let source = Source::Synthetic { seed: 0 };
    let mut trainer = Trainer::build(&*architecture, device, &settings, source, "").unwrap();
    for step in 0..steps {
        trainer.step(step).unwrap();
    }
    trainer.finish(None)
}

/// Fails if rows differ, and lists every row and column that does.
fn compare(name: &str, after: &[&str]) {
    let run = run(name);
    let device = device(&run);
    let ours = rows(&run, &device, after);
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

/// The full-size runs compute the loss in the forward pass.
const WITH_LOSS: &[&str] = &["input", "zero_grad", "loss=forward", "backward", "step"];

#[test]
fn resnet18_of_ten_classes() {
    compare("f_resnet18_b2_224_adam", &["input", "forward", "loss", "backward", "step"]);
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

/// Batch norm of f32 and float16 is cuDNN's too; the other recordings with cuDNN have PyTorch's own.
#[test]
fn networks_whose_batch_norm_is_cudnns() {
    for name in [
        "resnet18_b4_fp32_sgdm_cudnn_norms",
        "resnet18_b2_autocast_adam_cudnn_norms",
        "resnet50_b2_fp32_adam_cudnn_norms",
        "mobilenet_v2_b2_fp32_sgdm_cudnn_norms",
        "mobilenet_v2_b2_autocast_adam_cudnn_norms",
        "densenet121_b2_fp32_sgdm_cudnn_norms",
    ] {
        compare(name, WITH_LOSS);
    }
}

#[test]
fn on_other_cards() {
    for name in [
        "convnext_tiny_b8_autocast_adam_sm100",
        "densenet121_b2_fp32_sgdm_sm86",
        "mobilenet_v2_b8_fp32_adam_sm120",
        "resnet18_b4_fp32_sgdm_sm89",
        "vgg16_b2_autocast_adam_sm89",
    ] {
        compare(name, WITH_LOSS);
    }
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
fn resnet18_whose_blocks_are_computed_again() {
    compare("resnet18_checkpointed_autocast", WITH_LOSS);
}

#[test]
fn mobilenet_v2_with_batch_4() {
    compare("mobilenet_v2_b4_fp32_sgdm", WITH_LOSS);
}

#[test]
fn mobilenet_v2_narrow_and_computed_again() {
    compare("mobilenet_v2_narrow_checkpointed_bf16", WITH_LOSS);
}

/// cuDNN takes some of the convolutions of single channels, not all.
#[test]
fn mobilenet_v2_in_float16_and_cudnn() {
    compare("mobilenet_v2_b2_fp16_sgdm_cudnn", WITH_LOSS);
}

#[test]
fn densenet121_with_batch_4() {
    compare("densenet121_b4_fp32_sgdm", WITH_LOSS);
}

#[test]
fn densenet121_with_dropout_in_float16() {
    compare("densenet121_dropout_fp16", WITH_LOSS);
}

#[test]
fn densenet121_that_saves_memory_with_cudnn() {
    compare("densenet121_memory_efficient_cudnn", WITH_LOSS);
}

#[test]
fn convnext_tiny_with_batch_4() {
    compare("convnext_tiny_b4_fp32_adam", WITH_LOSS);
}

/// The first stage's rows are so many that normalisation sums in two steps, and blocks add the 16-bit results of convolutions.
#[test]
fn convnext_tiny_with_batch_32_under_autocast() {
    compare("convnext_tiny_b32_autocast_sgdm", WITH_LOSS);
}

#[test]
fn convnext_tiny_of_odd_sides() {
    compare("convnext_tiny_odd_side", WITH_LOSS);
}

/// A tensor of one example with one position has both memory formats at once.
#[test]
fn convnext_tiny_of_one_example_in_bfloat16() {
    compare("convnext_tiny_one_example_bf16", WITH_LOSS);
}

#[test]
fn convnext_tiny_down_to_one_position() {
    compare("convnext_tiny_one_position", WITH_LOSS);
}

#[test]
fn convnext_tiny_whose_blocks_are_computed_again() {
    compare("convnext_tiny_checkpointed_autocast", WITH_LOSS);
}

/// 67,416 rows in the first stage, no multiple of what a partial sum is of; another card; no block is ever left out.
#[test]
fn convnext_tiny_narrow_with_many_rows() {
    compare("convnext_tiny_many_rows_sm80", WITH_LOSS);
}

#[test]
fn convnext_small_narrow() {
    compare("convnext_small_narrow", WITH_LOSS);
}

#[test]
fn convnext_base_with_batch_2() {
    compare("convnext_base_b2", WITH_LOSS);
}

#[test]
fn convnext_large_under_autocast() {
    compare("convnext_large_b2", WITH_LOSS);
}

#[test]
fn parameters_to_the_number() {
    for run in runs() {
        let Some(expected) = number(&run, "params") else { continue };
        let architecture = architecture(run["model"].as_str().unwrap(), &options(&run)).unwrap();
        let model = Model::build(&*architecture, &Init::new(&device(&run), DType::F32, 0)).unwrap();
        assert_eq!(model.parameter_count(), expected as u64, "{}", run["name"]);
    }
}
