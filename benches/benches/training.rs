//! Training steps on every device, and the cost of keeping the ledger's history.
//!
//! `cargo bench -p benches --bench training [-- --backend cpu]`. The networks are those of the comparison with other
//! programs (`README.md`); `elem/s` counts examples.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_cpu::Cpu;
use criterion::{Criterion, Throughput};
use lab::bench::{Work, training};
use lab::models::{ModelOptions, architecture};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::Device;
use serde_json::json;

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

/// Creates the laboratory's own training loop, which marks phases and records a row of figures after each step.
fn trainer(model: &str, batch: usize, kind: OptimizerKind) -> (Device, Trainer) {
    let cpu = Cpu::new().expect("the CPU is there");
    let device = Device::builder(Arc::new(cpu)).build();
    let settings = RunSettings::new(batch, 0, OptimizerSettings::new(kind, 1e-3));
    let architecture = architecture(model, &ModelOptions::default()).expect("a known model");
    let trainer = Trainer::build(&*architecture, &device, &settings, Source::Synthetic { seed: 0 }, "");
    (device, trainer.expect("settings that fit"))
}

/// Steps after which the history begins anew, in fresh memory as a run that keeps all has it: it would grow without end.
const KEPT_STEPS: usize = 10_000;
/// Seconds for each network: thousands of pairs of steps, of the deepest a hundred.
const ACCOUNTING_SECONDS: u64 = 3;

/// Measures the cost of keeping the history of events. Two trainings, one with history and one without, take steps in
/// turn, and so does the order within a pair. On a shared machine both steps of a pair are slowed alike, so the median
/// of their ratio over all pairs is printed and kept. Criterion is told the steps with history.
fn accounting(c: &mut Criterion) {
    let work = [
        ("linear", 32, OptimizerKind::Sgd),
        ("mlp", 64, OptimizerKind::Adam),
        ("simple-cnn", 32, OptimizerKind::Adam),
        ("gpt", 8, OptimizerKind::AdamW),
    ];
    let mut group = c.benchmark_group("accounting/cpu");
    group.measurement_time(Duration::from_secs(ACCOUNTING_SECONDS));
    for (model, batch, kind) in common::sizes(&work).iter().copied() {
        let name = format!("{model}-b{batch}");
        let mut made: Option<[(Device, Trainer); 2]> = None;
        let mut pairs: Vec<[f64; 2]> = Vec::new();
        group.bench_function(&name, |b| {
            let both = made.get_or_insert_with(|| [trainer(model, batch, kind), trainer(model, batch, kind)]);
            b.iter_custom(|runs| {
                let from = pairs.len();
                (0..runs).for_each(|_| pairs.push(pair(both, pairs.len())));
                Duration::from_secs_f64(pairs[from..].iter().map(|pair| pair[1]).sum())
            });
        });
        say_accounting(&name, &pairs);
    }
    group.finish();
}

/// Returns the seconds of a step without history and of one with it.
fn pair(both: &mut [(Device, Trainer); 2], step: usize) -> [f64; 2] {
    if step.is_multiple_of(KEPT_STEPS) {
        // Off first: a history that begins anew takes the place of the old one.
        both[1].0.set_history(false);
        both[1].0.set_history(true);
    }
    let mut seconds = [0.0; 2];
    for turn in 0..2 {
        let which = (turn + step) % 2;
        let start = Instant::now();
        both[which].1.step(step).expect("a step that fits");
        seconds[which] = start.elapsed().as_secs_f64();
    }
    seconds
}

fn say_accounting(name: &str, pairs: &[[f64; 2]]) {
    let median = |of: fn(&[f64; 2]) -> f64| lab::figures::median(&pairs.iter().map(of).collect::<Vec<_>>());
    let (Some(without), Some(with), Some(ratio)) = (median(|p| p[0]), median(|p| p[1]), median(|p| p[1] / p[0])) else {
        return;
    };
    println!("{:24}adds:   {:+.2} % (the median of {} pairs)", "", 100.0 * (ratio - 1.0), pairs.len());
    let bench = format!("accounting/pairs/{name}");
    let row =
        json!({ "bench": bench, "ns": with * 1e9, "ns_without": without * 1e9, "ratio": ratio, "pairs": pairs.len() });
    common::leave(&format!("row-accounting-{name}"), &row);
}

fn main() -> ExitCode {
    common::main(&[steps, accounting])
}
