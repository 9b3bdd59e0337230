//! Training steps on the CPU, and what keeping the ledger's history adds to them.
//!
//! `cargo bench --bench training`

use std::sync::Arc;

use backend_cpu::Cpu;
use criterion::{Criterion, criterion_group, criterion_main};
use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::Device;

fn trainer(model: &str, batch: usize, kind: OptimizerKind, history: bool) -> Trainer {
    let cpu = Cpu::new().expect("the CPU is there");
    let device = Device::builder(Arc::new(cpu)).history(history).build();
    let settings = RunSettings::new(batch, 0, OptimizerSettings::new(kind, 1e-3));
    let architecture = architecture(model, &ModelOptions::default()).expect("a known model");
    Trainer::new(&*architecture, &device, &settings, Source::Synthetic { seed: 0 }, "").expect("settings that fit")
}

fn training(c: &mut Criterion) {
    let work = [
        ("linear", 32, OptimizerKind::Sgd),
        ("mlp", 64, OptimizerKind::Adam),
        ("simple-cnn", 32, OptimizerKind::Adam),
        ("simple-cnn", 128, OptimizerKind::Adam),
        ("gpt", 8, OptimizerKind::AdamW),
    ];
    for (model, batch, kind) in work {
        for history in [false, true] {
            let mut trainer = trainer(model, batch, kind, history);
            let name = format!("training/{model}-b{batch}/{}", if history { "history" } else { "totals" });
            let mut step = 0;
            c.bench_function(&name, |b| {
                b.iter(|| {
                    step += 1;
                    trainer.step(step).expect("a step that fits")
                })
            });
        }
    }
}

criterion_group!(benches, training);
criterion_main!(benches);
