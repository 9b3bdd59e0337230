//! Snapshots and reports: reading PyTorch's snapshots, writing our own, and making a page.
//!
//! `cargo bench -p benches --bench snapshots`. `B/s` counts bytes of the file.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use lab::models::{ModelOptions, architecture};
use lab::report::{Part, Recording, Source as ReportSource, html, read};
use lab::snapshot::{self, Snapshot, record, write_json, write_pickle};
use lab::training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::backend::Meta;
use memcore::{Device, Profile};

mod common;

/// A recorded snapshot of PyTorch.
const RECORDED: &str = "lab/traces/tests/golden/snapshots/gpt_untied_plain.pickle";

/// Runs GPT-2 with its history: tens of thousands of events.
fn run(steps: usize) -> Device {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).history(true).build();
    let settings = RunSettings::new(8, steps, OptimizerSettings::new(OptimizerKind::AdamW, 1e-4));
    let gpt2 = architecture("gpt2", &ModelOptions::default()).expect("a known model");
    let going_on = &mut |_| ControlFlow::Continue(());
    train(&*gpt2, &device, &settings, Source::Synthetic { seed: 0 }, going_on).expect("a device that is never full");
    device
}

fn snapshots(c: &mut Criterion) {
    let recorded = std::fs::read(common::in_project(RECORDED)).expect("a recorded snapshot");
    let device = run(if common::is_test() { 1 } else { 10 });
    let document = device.with_ledger(|ledger| {
        let events = ledger.history().len();
        record(ledger, &snapshot::Recording { events, ..Default::default() })
    });
    let (mut pickle, mut json) = (Vec::new(), Vec::new());
    write_pickle(&document, &mut pickle).expect("memory for it");
    write_json(&document, &mut json).expect("memory for it");
    let mut group = c.benchmark_group("snapshots");
    for (name, file) in [("recorded", &recorded), ("gpt2 pickle", &pickle), ("gpt2 json", &json)] {
        group.throughput(Throughput::BytesDecimal(file.len() as u64));
        group.bench_function(format!("read/{name}"), |b| {
            b.iter(|| Snapshot::read("snapshot", black_box(file.as_slice())).expect("a snapshot"));
        });
    }
    group.throughput(Throughput::BytesDecimal(pickle.len() as u64));
    group.bench_function("write/gpt2 pickle", |b| {
        b.iter(|| {
            let mut out = Vec::with_capacity(pickle.len());
            write_pickle(black_box(&document), &mut out).expect("memory for it");
            out
        });
    });
    group.finish();
}

fn reports(c: &mut Criterion) {
    let device = run(if common::is_test() { 1 } else { 10 });
    let recording = device.with_ledger(|ledger| Recording::of_ledger("gpt2", ledger));
    let recorded = std::fs::read(common::in_project(RECORDED)).expect("a recorded snapshot");
    let mut group = c.benchmark_group("reports");
    group.throughput(Throughput::Elements(recording.events().len() as u64));
    group.bench_function("page/gpt2", |b| {
        b.iter(|| html(&[Part::Recording(black_box(&recording))]).expect("a page"));
    });
    group.throughput(Throughput::BytesDecimal(recorded.len() as u64));
    group.bench_function("from a snapshot", |b| {
        b.iter(|| {
            let Ok(ReportSource::Recording(recording)) = read::read("snapshot", black_box(&recorded)) else {
                panic!("no snapshot");
            };
            html(&[Part::Recording(&recording)]).expect("a page")
        });
    });
    group.finish();
}

fn main() -> ExitCode {
    common::main(&[snapshots, reports])
}
