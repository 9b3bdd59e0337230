//! A network split over two devices by its layers: the events of each device's allocator.

use lab::models::{ModelOptions, architecture};
use lab::pipeline::{self, Cut, PipelineSettings, Schedule};
use lab::record::Row;
use lab::training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Source};
use memcore::Device;

use super::compare::differences_until;
use super::recording::Recording;
use super::run::scripts;

/// Five linear layers, 64 → 256 ×4 → 10, two of them on the first device; three steps with a batch of 64.
fn settings(micro_batches: usize) -> PipelineSettings {
    let optimizer = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let (run, cut) = (RunSettings::new(64, 3, optimizer), Cut::Before(vec![2]));
    PipelineSettings { run, micro_batches, schedule: Schedule::Gpipe, cut }
}

/// Rows and events of each device, up to the last step's.
fn check(name: &str, settings: &PipelineSettings) {
    let options = ModelOptions { layers: Some(4), width: Some(256), ..ModelOptions::default() };
    let network = architecture("mlp", &options).unwrap();
    let recordings = [0, 1].map(|device| Recording::load(&format!("torch-2.15/{name}_{device}")));
    let devices: Vec<Device> = recordings.iter().map(Recording::device).collect();
    let mut trainer = pipeline::trainer(&*network, &devices, settings, Source::Synthetic { seed: 0 }).unwrap();
    for step in 0..settings.run.steps {
        trainer.step(step).unwrap();
    }
    let rows: Vec<Vec<Row>> = trainer.rows_by_device().into_iter().map(<[Row]>::to_vec).collect();
    let unordered = settings.run.precision.autocast().is_some();
    for (number, (recording, (device, rows))) in recordings.iter().zip(devices.iter().zip(&rows)).enumerate() {
        let differences = differences_until(recording, device, rows, unordered);
        assert!(differences.is_empty(), "{name}, device {number}:\n{}", differences.join("\n"));
    }
}

fn with(name: &str, micro_batches: usize, change: impl FnOnce(&mut RunSettings)) {
    let mut settings = settings(micro_batches);
    change(&mut settings.run);
    check(name, &settings);
}

scripts! {
    split_adam => |name| with(name, 1, |_| {});
    split_gpipe => |name| with(name, 4, |_| {});
    split_sgd_accumulate => |name| with(name, 2, |run| {
        (run.optimizer, run.accumulate) = (OptimizerSettings::new(OptimizerKind::Sgd, 1e-3), 2);
    });
    split_clip => |name| with(name, 2, |run| run.clip_grad_norm = Some(0.5));
    split_autocast_bf16 => |name| with(name, 2, |run| {
        (run.optimizer, run.precision) = (OptimizerSettings::new(OptimizerKind::AdamW, 1e-3), Precision::AutocastBf16);
    });
    split_autocast_fp16 => |name| with(name, 2, |run| run.precision = Precision::AutocastFp16);
    split_autocast_fp16_clip => |name| with(name, 2, |run| {
        (run.precision, run.clip_grad_norm) = (Precision::AutocastFp16, Some(0.5));
    });
}
