//! Cost of a prediction without a device: whole training steps on `meta` from scratch (device, model, optimizer, two
//! steps).
//!
//! `cargo bench -p benches --bench dry_run`

use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use criterion::Criterion;
use lab::huggingface::{self, Keep, Options, Pretrained};
use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Source, train};
use memcore::backend::Meta;
use memcore::{Device, Profile};

mod common;

/// Two steps: the second has gradients, optimizer state and the last step's tensors, and so the peak.
const STEPS: usize = 2;

/// Llama 3, 8 B, as its `config.json` describes it.
const LLAMA: &str = r#"{ "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false }"#;

fn device() -> Device {
    Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build()
}

fn settings(batch: usize) -> RunSettings {
    RunSettings::new(batch, STEPS, OptimizerSettings::new(OptimizerKind::AdamW, 1e-4))
}

/// The peak of a network of the laboratory.
fn predicted(model: &str, batch: usize) -> u64 {
    let architecture = architecture(model, &ModelOptions::default()).expect("a known model");
    let going_on = &mut |_| ControlFlow::Continue(());
    let result = train(&*architecture, &device(), &settings(batch), Source::Synthetic { seed: 0 }, going_on);
    result.expect("a device that is never full").usage.peak_bytes()
}

/// The peak of a network of transformers, in bf16.
fn pretrained(model: &Pretrained) -> u64 {
    let settings = RunSettings { precision: Precision::Bf16, ..settings(1) };
    let going_on = &mut |_| ControlFlow::Continue(());
    let result = huggingface::train(model, &device(), &settings, Source::Renewed { seed: 0 }, Keep::Output, going_on);
    result.expect("a device that is never full").usage.peak_bytes()
}

fn dry_run(c: &mut Criterion) {
    for (name, model, batch) in
        [("simple-cnn-b128", "simple-cnn", 128), ("gpt2-b8-t1024", "gpt2", 8), ("resnet50-b32", "resnet50", 32)]
    {
        c.bench_function(&format!("dry_run/{name}"), |b| b.iter(|| black_box(predicted(model, batch))));
    }
    let options = Options { sequence: Some(2048), ..Options::default() };
    let llama = huggingface::parse("config.json", LLAMA, &options).expect("a configuration that is understood");
    c.bench_function("dry_run/llama-8b-b1-t2048", |b| b.iter(|| black_box(pretrained(&llama))));
}

fn main() -> ExitCode {
    common::main(&[dry_run])
}
