//! What a prediction without a device costs: whole training steps on `meta`.
//!
//! `cargo bench --bench dry_run`

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::backend::Meta;
use memcore::{Device, Profile};

fn settings(batch: usize, steps: usize) -> RunSettings {
    RunSettings::new(batch, steps, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3))
}

/// Peak of `steps` training steps of a model, from nothing: device, model, optimizer, steps.
fn predict(model: &str, batch: usize, steps: usize) -> u64 {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build();
    let architecture = architecture(model, &ModelOptions::default()).expect("a known model");
    let progress = &mut |_| std::ops::ControlFlow::Continue(());
    let settings = settings(batch, steps);
    let result = train(&*architecture, &device, &settings, Source::Synthetic { seed: 0 }, progress);
    result.expect("a device that is never full").usage.peak_bytes()
}

fn dry_run(c: &mut Criterion) {
    // Two steps: the second has gradients, optimizer state and last step's tensors, and so the peak.
    c.bench_function("dry_run/gpt2-b8-t1024-adamw", |b| b.iter(|| black_box(predict("gpt2", 8, 2))));
    c.bench_function("dry_run/simple-cnn-b128", |b| b.iter(|| black_box(predict("simple-cnn", 128, 3))));
}

criterion_group!(benches, dry_run);
criterion_main!(benches);
