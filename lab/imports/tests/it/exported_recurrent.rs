//! Compares exports with LSTM, GRU and RNN under `--cudnn-workspace` with the real PyTorch, which ran them with cuDNN (`golden/exported/cudnn`, made by
//! `scripts/export/recurrent.py`): exported programs, whose weights are compacted in each call, and users' modules, whose weights are in one buffer.

use crate::archives;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lab_imports::exported::{self, LossName};
use lab_training::record::{COLUMNS, Row};
use lab_training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::backend::{DeviceProfile, Meta};
use memcore::ops::{Recurrent, gru};
use memcore::profile::Convolution;
use memcore::{Array, DType, Deviation, Device, Profile, Tensor};
use serde::Deserialize;

use crate::archives::compared::{as_written, golden};

/// One run of the real PyTorch.
#[derive(Deserialize)]
struct Run {
    /// `graph` for the exported program, `eager` for the user's module.
    form: String,
    precision: String,
    batch: usize,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Recording {
    loss: String,
    columns: Vec<String>,
    runs: Vec<Run>,
    entry: serde_json::Value,
}

impl Recording {
    fn read(name: &str) -> Self {
        let recording: Self = serde_json::from_slice(&golden(&format!("cudnn/{name}.json"))).unwrap();
        assert_eq!(recording.columns, COLUMNS);
        recording
    }
}

fn device(cudnn: bool) -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    let mut profile = Profile::torch_2_11(90);
    if cudnn {
        profile.convolution = Convolution::Cudnn { workspace_bytes: 0 };
    }
    Device::builder(Arc::new(Meta::new(card))).profile(profile).build()
}

fn ours(path: &Path, loss: &str, run: &Run, device: &Device) -> Vec<Row> {
    let loss: Option<LossName> = (loss != "inside").then(|| loss.parse().unwrap());
    let model = exported::load(path, loss).unwrap();
    let mut settings = RunSettings::new(run.batch, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    settings.precision = run.precision.parse().unwrap();
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let result = exported::train_from(&model, device, &settings, source, &mut Continuation::default(), progress);
    let mut rows = result.unwrap().rows;
    rows.pop();
    rows
}

/// The figures that differ, as text.
fn differences(name: &str) -> Vec<String> {
    let (recording, folder) = (Recording::read(name), tempfile::tempdir().unwrap());
    let mut found = Vec::new();
    for run in &recording.runs {
        let entry = (run.form == "eager").then_some(&recording.entry);
        let path = as_written("cudnn", name, folder.path(), entry);
        let device = device(true);
        let ours = ours(&path, &recording.loss, run, &device);
        assert!(!device.deviations().contains(Deviation::RecurrentWithoutCudnn));
        assert_eq!(ours.len(), run.rows.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&run.rows) {
            assert_eq!(ours.label, theirs.label);
            for (i, (ours_now, theirs_now)) in ours.figures().into_iter().zip(theirs.figures()).enumerate() {
                if ours_now != theirs_now {
                    let Run { form, precision, batch, .. } = run;
                    let (row, column) = (&ours.label, COLUMNS[i + 1]);
                    found.push(format!(
                        "{form} {precision} batch {batch}, {row}: {column} {ours_now}, PyTorch {theirs_now}"
                    ));
                }
            }
        }
    }
    found
}

macro_rules! equal {
    ($($test:ident: $name:literal;)+) => {
        $(#[test]
        fn $test() {
            let found = differences($name);
            assert!(found.is_empty(), "{} figures differ:\n{}", found.len(), found.join("\n"));
        })+
    };
}

equal! {
    an_lstm_in_both_directions: "lstm";
    a_language_model: "lstm-lm";
    a_reader_of_lines: "crnn";
    a_tagger: "tagger";
    a_tagger_in_bfloat16: "tagger-bf16";
    an_encoder_and_a_decoder: "seq2seq";
    a_forecast_with_frozen_weights: "series";
    a_forecast_in_float16: "series-fp16";
    a_gru_without_biases: "gru";
    a_language_model_of_grus: "gru-lm";
    an_elman_network: "rnn";
}

/// Without `--cudnn-workspace` the layers are PyTorch's own, and the answer says so.
#[test]
fn an_answer_says_that_recurrent_layers_are_those_without_cudnn() {
    let folder = tempfile::tempdir().unwrap();
    for (name, says) in [("lstm", true), ("gru", true), ("rnn", true), ("cells", false), ("mlp", false)] {
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
        let device = device(false);
        let run = Run { form: "graph".into(), precision: "fp32".into(), batch: 2, rows: Vec::new() };
        ours(&path, "cross-entropy", &run, &device);
        assert_eq!(device.deviations().contains(Deviation::RecurrentWithoutCudnn), says, "{name}");
    }
}

/// A device that computes has no kernels for cuDNN's layers: it composes them, and says so.
#[test]
fn a_device_that_computes_takes_pytorchs_own_layers() {
    let mut profile = Profile::torch_2_11(90);
    profile.convolution = Convolution::Cudnn { workspace_bytes: 0 };
    let backend = Arc::new(backend_cpu::Cpu::with_threads(1).unwrap());
    let device = Device::builder(backend).profile(profile).build();
    let zeros = |dims: &[usize]| Tensor::from_array(Array::zeros(&device, dims, DType::F32).unwrap());
    let weights = [zeros(&[9, 2]), zeros(&[9, 3])];
    let options = Recurrent { layers: 1, bidirectional: false, dropout: 0.0, training: true, batch_first: false };
    let [out, _] = gru(&zeros(&[4, 1, 2]), &zeros(&[1, 1, 3]), &weights.each_ref(), options).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [0.0; 12]);
    assert!(device.deviations().contains(Deviation::RecurrentWithoutCudnn));
}
