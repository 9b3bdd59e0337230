//! Exports split over devices beside the same programs split by `torch.fx.passes.split_module` on the real PyTorch (`golden/exported/split`, made by
//! `scripts/export/split.py`): every figure of each device at two batches.

use crate::archives;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lab_imports::exported::{self, Exported};
use lab_training::pipeline::{Cut, PipelineResult, PipelineSettings, Schedule};
use lab_training::record::{COLUMNS, Row};
use lab_training::{
    Begin, Continuation, Failed, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source, StateFile,
};
use memcore::Device;
use serde::Deserialize;

use crate::archives::compared::{as_the_package_writes, device, golden};

/// Recorded runs: rows of each device, by batch.
#[derive(Deserialize)]
struct Recording {
    network: String,
    loss: String,
    /// Modules that the stages after the first begin with.
    starts: Vec<String>,
    micro_batches: usize,
    schedule: String,
    /// True if the forward passes are in `torch.autocast` to bfloat16.
    autocast: bool,
    columns: Vec<String>,
    runs: BTreeMap<usize, Vec<Vec<Row>>>,
}

fn settings(batch: usize, micro_batches: usize, schedule: Schedule, cut: Cut) -> PipelineSettings {
    let run = RunSettings::new(batch, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    PipelineSettings { run, micro_batches, schedule, cut }
}

fn split(model: &Exported, devices: &[Device], settings: &PipelineSettings) -> Result<PipelineResult, Failed> {
    let (source, go_on) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    exported::train_split(model, devices, settings, source, &mut Continuation::default(), go_on)
}

/// The pieces that begin with these modules.
fn cut_before(model: &Exported, starts: &[String]) -> Cut {
    let pieces = model.pieces();
    let number = |start: &String| pieces.iter().position(|modules| modules.first() == Some(start)).unwrap();
    Cut::Before(starts.iter().map(number).collect())
}

/// A figure of a device that differs from PyTorch's.
struct Difference {
    batch: usize,
    device: usize,
    row: String,
    column: &'static str,
    ours: u64,
    theirs: u64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { batch, device, row, column, ours, theirs } = self;
        write!(f, "batch {batch}, device {device}, {row}: {column} {ours}, PyTorch {theirs}")
    }
}

/// Every row and column that differs.
fn differences(name: &str) -> Vec<Difference> {
    let recording: Recording = serde_json::from_slice(&golden(&format!("split/{name}.json"))).unwrap();
    assert_eq!(recording.columns, COLUMNS);
    assert_eq!(recording.runs.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden(&format!("{}.pt2.gz", recording.network)), folder.path(), &recording.network);
    let loss = (recording.loss != "inside").then(|| recording.loss.parse().unwrap());
    let model = exported::load(&path, loss).unwrap();
    let cut = cut_before(&model, &recording.starts);
    let mut found = Vec::new();
    for (batch, theirs) in &recording.runs {
        let devices: Vec<Device> = theirs.iter().map(|_| device()).collect();
        let schedule = recording.schedule.parse().unwrap();
        let mut settings = settings(*batch, recording.micro_batches, schedule, cut.clone());
        if recording.autocast {
            settings.run.precision = Precision::AutocastBf16;
        }
        let result = split(&model, &devices, &settings).unwrap();
        assert_eq!(result.stages.len(), recording.starts.len() + 1);
        for (device, (stage, theirs)) in result.stages.iter().zip(theirs).enumerate() {
            let (end, ours) = stage.rows.split_last().unwrap();
            assert_eq!(end.label, "end");
            assert_eq!(ours.len(), theirs.len(), "{name}, batch {batch}, device {device}");
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_eq!(ours.label, theirs.label);
                for (place, (ours_now, theirs_now)) in ours.figures().into_iter().zip(theirs.figures()).enumerate() {
                    let (row, column) = (ours.label.clone(), COLUMNS[place + 1]);
                    let all = Difference { batch: *batch, device, row, column, ours: ours_now, theirs: theirs_now };
                    found.extend((ours_now != theirs_now).then_some(all));
                }
            }
        }
    }
    found
}

macro_rules! equal {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            let differences: Vec<String> = differences($name).iter().map(ToString::to_string).collect();
            assert!(differences.is_empty(), "{}:\n{}", $name, differences.join("\n"));
        }
    )*};
}

equal! {
    resnet50_of_torchvision: "resnet50";
    resnet50_on_four_devices: "resnet50-four";
    gpt2_of_transformers: "gpt2";
    gpt2_with_micro_batches_in_the_order_of_gpipe: "gpt2-gpipe";
    gpt2_with_micro_batches_one_forward_one_backward: "gpt2-1f1b";
    a_u_net_whose_skip_connections_cross: "unet";
    a_u_net_on_four_devices: "unet-four";
    nanogpt_with_tied_embeddings: "nanogpt";
    nanogpt_with_micro_batches: "nanogpt-1f1b";
    nanogpt_under_autocast: "nanogpt-autocast";
}

/// Two gradients cross the cut: that of the encoder's result, and that of the decoder's tokens. PyTorch works on the first while it moves the
/// second, so that the first device's peak differs by up to 10 KiB from run to run. Ours is that of `torch.autograd.set_multithreading_enabled(False)`.
#[test]
fn an_encoder_with_a_decoder_but_for_a_peak_that_differs_from_run_to_run() {
    let found = differences("bart");
    for one in &found {
        assert!(one.device == 0 && ["max_allocated", "phase_peak_allocated"].contains(&one.column), "{one}");
        assert!(one.ours.abs_diff(one.theirs) <= 10 << 10, "{one}");
    }
}

fn load(name: &str, loss: Option<&str>) -> (tempfile::TempDir, Exported) {
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), "net");
    let model = exported::load(&path, loss.map(|loss| loss.parse().unwrap())).unwrap();
    (folder, model)
}

fn cpus(count: usize) -> Vec<Device> {
    (0..count).map(|_| Device::new(backend_cpu::Cpu::with_threads(1).unwrap())).collect()
}

fn metas(count: usize) -> Vec<Device> {
    (0..count).map(|_| device()).collect()
}

fn refused(model: &Exported, devices: usize, settings: &PipelineSettings) -> String {
    split(model, &metas(devices), settings).unwrap_err().to_string()
}

/// Wherever they are cut: with several inputs, tied weights, statistics, the loss inside and outside, and parts that are computed again.
#[test]
fn losses_are_those_of_one_device_to_the_bit() {
    for name in ["gpt", "cnn", "cells", "gnn", "einsum"] {
        let (folder, model) = load(&format!("{name}-weights"), None);
        let run = settings(4, 1, Schedule::Gpipe, Cut::Balanced).run;
        let (source, go_on) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
        let whole = exported::train_from(&model, &cpus(1)[0], &run, source, &mut Continuation::default(), go_on);
        let whole = whole.unwrap();
        assert!(whole.losses.len() == 3 && whole.losses[2] < whole.losses[0], "{name}: {:?}", whole.losses);
        let again = |modules: &str| {
            let model = exported::load(&folder.path().join("net.pt2"), None).unwrap();
            model.recomputing(&modules.parse().unwrap()).unwrap()
        };
        let models = if name == "gpt" { vec![model, again("h.*")] } else { vec![model] };
        for model in &models {
            let pieces = model.pieces().len();
            assert!(pieces > 1, "{name}");
            for cut in 1..pieces {
                let split = split(model, &cpus(2), &settings(4, 1, Schedule::Gpipe, Cut::Before(vec![cut]))).unwrap();
                assert_eq!(split.losses, whole.losses, "{name} cut before {cut}");
                assert_eq!(split.parameters, whole.parameters, "{name}");
                let left: u64 = split.stages.iter().map(|stage| stage.rows.last().unwrap().allocated).sum();
                assert_eq!(left, 0, "{name} cut before {cut}");
            }
        }
    }
}

/// The file of a split run is that of a run on one device, and either goes on from the other's.
#[test]
fn a_split_run_saves_and_resumes_as_one_on_one_device() {
    let go_on = &mut |_| ControlFlow::Continue(());
    for name in ["gpt", "cnn"] {
        let (_folder, model) = load(&format!("{name}-weights"), None);
        let settings = settings(4, 1, Schedule::Gpipe, Cut::Balanced);
        let mut run = |devices: usize, begin: Begin<'_>| {
            let (source, devices) = (Source::Synthetic { seed: 0 }, cpus(devices));
            let mut continuation = Continuation { begin, save: true, saved: None };
            let losses = match devices.as_slice() {
                [one] => {
                    let result = exported::train_from(&model, one, &settings.run, source, &mut continuation, go_on);
                    result.unwrap().losses
                }
                several => {
                    let result = exported::train_split(&model, several, &settings, source, &mut continuation, go_on);
                    result.unwrap().losses
                }
            };
            (losses, continuation.saved.unwrap())
        };
        let (whole, whole_state) = run(1, Begin::Fresh);
        let (split, split_state) = run(2, Begin::Fresh);
        assert_eq!((split, &split_state.tensors), (whole, &whole_state.tensors), "{name}");
        let mut bytes = Vec::new();
        split_state.write(&mut bytes).unwrap();
        let file = StateFile::read("split", &bytes).unwrap();
        let (further, state) = run(1, Begin::Resume(&file));
        let (same, same_state) = run(2, Begin::Resume(&file));
        assert_eq!((same, same_state.tensors), (further, state.tensors), "{name}");
    }
}

#[test]
fn micro_batches_and_precisions_give_what_they_give_on_one_device() {
    let (_folder, model) = load("cnn-weights", None);
    for (schedule, precision) in
        [(Schedule::Gpipe, Precision::Fp32), (Schedule::OneForwardOneBackward, Precision::AutocastBf16)]
    {
        let mut settings = settings(8, 4, schedule, Cut::Balanced);
        (settings.run.precision, settings.run.accumulate) = (precision, 2);
        let losses = |devices: usize| split(&model, &cpus(devices), &settings).unwrap().losses;
        let one = losses(1);
        assert_eq!(one.len(), 3);
        assert_eq!(losses(2), one, "{precision}");
        assert_eq!(losses(3), one, "{precision}");
    }
}

/// A device without values sees the memory of one that computes, row by row.
#[test]
fn paper_and_processor_agree() {
    for name in ["gpt", "cnn"] {
        let (_folder, model) = load(&format!("{name}-weights"), None);
        let settings = settings(4, 2, Schedule::OneForwardOneBackward, Cut::Balanced);
        let paper: Vec<Device> = (0..2).map(|_| Device::new(memcore::backend::Meta::default())).collect();
        let (here, there) = (split(&model, &cpus(2), &settings).unwrap(), split(&model, &paper, &settings).unwrap());
        assert!(there.losses.is_empty());
        for (here, there) in here.stages.iter().zip(&there.stages) {
            assert_eq!(here.rows, there.rows, "{name}");
            assert_eq!((here.sent_bytes, here.in_flight), (there.sent_bytes, there.in_flight));
            assert!(here.sent_bytes > 0);
        }
    }
}

#[test]
fn pieces_are_blocks_and_what_is_around_them_or_the_outermost_modules() {
    let pieces = |name: &str, loss| load(name, loss).1.pieces().iter().map(|of| of.join(" ")).collect::<Vec<_>>();
    assert_eq!(pieces("nanogpt", None), ["wte wpe drop", "h.0", "h.1", "ln_f lm_head"]);
    let unet = ["down.0", "down.1", "down.2 middle up.0", "after.0 up.1", "after.1 up.2", "after.2", "out"];
    assert_eq!(pieces("unet", Some("mean")), unet);
    assert_eq!(pieces("cnn", None), ["conv1", "conv2", "norm", "fc"]);
    assert_eq!(pieces("split/shared-norm", None), ["first", "norm", "second norm", "last"]);
    let settings = settings(4, 1, Schedule::Gpipe, Cut::Balanced);
    let (_folder, model) = load("nanogpt", None);
    let result = split(&model, &metas(2), &settings).unwrap();
    let modules: Vec<&str> = result.stages.iter().map(|stage| stage.modules.as_deref().unwrap()).collect();
    assert_eq!(modules, ["wte, wpe, drop, h.0", "h.1, ln_f, lm_head"]);
}

#[test]
fn what_cannot_be_split_is_refused_with_the_reason() {
    let before = |cut: usize| settings(4, 1, Schedule::Gpipe, Cut::Before(vec![cut]));
    let (_folder, model) = load("split/shared-norm", None);
    let error = refused(&model, 5, &settings(4, 1, Schedule::Gpipe, Cut::Balanced));
    assert!(
        error.contains("5 devices for a network of 4 pieces") && error.contains("2: second, norm; 3: last"),
        "{error}"
    );
    assert!(error.contains("It is not cut before norm, which other modules run between"), "{error}");
    let error = refused(&model, 2, &before(2));
    assert!(error.contains("norm.") && error.contains("is on several devices, and one of them writes it"), "{error}");
    split(&model, &metas(2), &before(3)).unwrap();
    let (_folder, model) = load("split/in-place", None);
    let error = refused(&model, 3, &settings(4, 1, Schedule::Gpipe, Cut::Balanced));
    assert!(error.contains("linear is used on several devices, and one of them writes it in place"), "{error}");
    split(&model, &metas(2), &before(1)).unwrap();
    let (_folder, model) = load("split/early", None);
    assert!(refused(&model, 2, &before(2)).contains("the loss is computed from linear_1, which is made before"));
    split(&model, &metas(2), &before(1)).unwrap();
    let (_folder, model) = load("resnet50", None);
    let model = model.recomputing(&"layer3".parse().unwrap()).unwrap();
    let cut = cut_before(&model, &["layer3.2".to_string()]);
    let error = refused(&model, 2, &settings(4, 1, Schedule::Gpipe, cut));
    assert!(error.contains("checkpoint: layer3: it is cut between two devices"), "{error}");
}

/// A recorded call has one batch, which is then that of a micro-batch.
#[test]
fn micro_batches_of_a_recorded_call_have_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let entry = serde_json::json!({"version": 1, "recorded": true});
    let model = exported::load(&as_the_package_writes("mlp", folder.path(), Some(&entry)), None).unwrap();
    let of = |batch, parts| settings(batch, parts, Schedule::Gpipe, Cut::Balanced);
    split(&model, &metas(2), &of(8, 4)).unwrap();
    assert!(refused(&model, 2, &of(8, 2)).contains("recorded with a batch of 2"));
}

/// Every network that is compared on one device is split over two, or refused for what it is: one module alone, complex parameters, a loss of a
/// result that the first half makes.
#[test]
fn all_networks_are_split_or_refused_by_name() {
    let folder = std::path::Path::new(crate::EXPORTS);
    let (mut divided, mut refused) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".pt2.gz").filter(|name| !name.ends_with("-weights")) else { continue };
        let (_folder, model) = load(name, None);
        let settings = settings(4, 2, Schedule::OneForwardOneBackward, Cut::Balanced);
        match split(&model, &metas(2), &settings) {
            Ok(result) => {
                divided += 1;
                assert!(result.stages.iter().all(|stage| stage.modules.as_ref().is_some_and(|of| !of.is_empty())));
                assert!(result.stages.iter().all(|stage| stage.rows.last().unwrap().label == "end"), "{name}");
            }
            Err(failed) => {
                assert!(failed.error.is_usage(), "{name}: {failed}");
                refused.push(format!("{name}: {failed}"));
            }
        }
    }
    assert!(divided >= 60, "{divided}");
    refused.sort();
    let expected = [
        "arithmetic: devices: 2 devices for a network of 1 pieces",
        "equations: devices: 2 devices for a network of 1 pieces",
        "fno: devices: complex parameters",
        "functions: devices: 2 devices for a network of 1 pieces",
        "indexed: devices: 2 devices for a network of 1 pieces",
        "routed: devices: parameters of bfloat16 and of float32",
        "spectra: devices: complex parameters",
        "ssd-backbone: cut: the loss is computed from",
    ];
    let is_expected = refused.iter().zip(expected).all(|(text, expected)| text.starts_with(expected));
    assert!(is_expected && refused.len() == expected.len(), "{}", refused.join("\n"));
}
