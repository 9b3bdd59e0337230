//! Training steps on every device, and what keeping the ledger's history adds to them.
//!
//! `cargo bench -p benches --bench training [-- --backend cpu]`. The networks are those that other programs are compared on
//! (`README.md`); `elem/s` counts examples.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_cpu::Cpu;
use criterion::{Criterion, Throughput};
use lab::bench::{Work, training};
use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::Device;

mod common;

fn steps(c: &mut Criterion) {
    for found in common::devices() {
        let mut group = c.benchmark_group(format!("training/{}", found.name));
        for workload in common::sizes(&training::ALL) {
            group.throughput(Throughput::Elements(workload.batch as u64));
            let mut work: Option<Work> = None;
            group.bench_function(workload.name, |b| {
                let work = work.get_or_insert_with(|| {
                    let device = found.device();
                    workload.prepare(&device).and_then(training::Training::into_work).expect("a step that fits")
                });
                b.iter_custom(|runs| work.run(runs).expect("a step that fits"));
            });
        }
        group.finish();
    }
}

/// A step of the laboratory's own loop, which marks phases and takes a row of figures after each.
fn trainer(model: &str, batch: usize, kind: OptimizerKind) -> (Device, Trainer) {
    let cpu = Cpu::new().expect("the CPU is there");
    let device = Device::builder(Arc::new(cpu)).build();
    let settings = RunSettings::new(batch, 0, OptimizerSettings::new(kind, 1e-3));
    let architecture = architecture(model, &ModelOptions::default()).expect("a known model");
    let trainer = Trainer::new(&*architecture, &device, &settings, Source::Synthetic { seed: 0 }, "");
    (device, trainer.expect("settings that fit"))
}

/// Steps after which the history begins anew: it would grow without end.
const KEPT_STEPS: usize = 100;

/// What the history of events adds: two trainings in turn, one with it and one without, so that both see the same machine; each of
/// the two benchmarks counts its own.
fn accounting(c: &mut Criterion) {
    let work = [
        ("linear", 32, OptimizerKind::Sgd),
        ("mlp", 64, OptimizerKind::Adam),
        ("simple-cnn", 32, OptimizerKind::Adam),
        ("gpt", 8, OptimizerKind::AdamW),
    ];
    for (model, batch, kind) in common::sizes(&work).iter().copied() {
        for counted in ["totals", "history"] {
            let mut made: Option<[(Device, Trainer); 2]> = None;
            let mut step = 0;
            c.bench_function(&format!("accounting/cpu/{model}-b{batch}/{counted}"), |b| {
                let both = made.get_or_insert_with(|| [trainer(model, batch, kind), trainer(model, batch, kind)]);
                b.iter_custom(|runs| {
                    let mut taken = Duration::ZERO;
                    for _ in 0..runs {
                        for (history, (device, trainer)) in [false, true].into_iter().zip(&mut *both) {
                            if history && step % KEPT_STEPS == 0 {
                                device.set_history(true);
                            }
                            let start = Instant::now();
                            trainer.step(step).expect("a step that fits");
                            if history == (counted == "history") {
                                taken += start.elapsed();
                            }
                        }
                        step += 1;
                    }
                    taken
                });
            });
        }
    }
}

fn main() -> ExitCode {
    common::main(&[steps, accounting])
}
