//! Saved runs: a resumed run equals the uninterrupted one bit for bit; a file that does not fit is refused with the cause.

use std::ops::ControlFlow;
use std::sync::Arc;

use backend_cpu::Cpu;
use lab_models::{Architecture, Model, ModelOptions, architecture};
use lab_training::data::digits;
use lab_training::pipeline::{self, Cut, PipelineSettings, Schedule::Gpipe};
use lab_training::{
    self as training, Begin, Continuation, OptimizerKind, OptimizerSettings, Precision, RunResult, RunSettings,
    Schedule, Source, StateFile, TrainingState,
};
use memcore::backend::Meta;
use memcore::memory::Event;
use memcore::nn::Init;
use memcore::optim::Implementation;
use memcore::{Array, DType, Device, Profile, Tensor};

fn cpu() -> Device {
    Device::builder(Arc::new(Cpu::new().unwrap())).seed(3).build()
}

fn meta() -> Device {
    Device::builder(Arc::new(Meta::default())).build()
}

fn settings(kind: OptimizerKind, batch: usize, steps: usize) -> RunSettings {
    RunSettings { seed: 3, ..RunSettings::new(batch, steps, OptimizerSettings::new(kind, 1e-2)) }
}

fn network(name: &str, change: impl FnOnce(&mut ModelOptions)) -> Box<dyn Architecture> {
    let mut options = ModelOptions::small(name);
    change(&mut options);
    architecture(name, &options).unwrap()
}

fn mlp() -> Box<dyn Architecture> {
    network("mlp", |options| (options.layers, options.width) = (Some(1), Some(12)))
}

const SYNTHETIC: Source = Source::Synthetic { seed: 3 };

fn bytes(state: &TrainingState) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.write(&mut bytes).unwrap();
    bytes
}

/// Makes a run and saves it at its end.
fn saved(
    network: &dyn Architecture,
    device: &Device,
    settings: &RunSettings,
    source: &Source,
    begin: Begin<'_>,
) -> Result<(RunResult, TrainingState), String> {
    let mut continuation = Continuation { begin, save: true, saved: None };
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = training::train_from(network, device, settings, source.clone(), &mut continuation, go_on);
    result.map(|result| (result, continuation.saved.unwrap())).map_err(|failed| failed.to_string())
}

/// Four steps at once, and two plus two through a file: the same losses and the same final state.
fn goes_on(network: &dyn Architecture, settings: &RunSettings, source: &Source) -> TrainingState {
    let of = |steps, begin: Begin<'_>| {
        saved(network, &cpu(), &RunSettings { steps, ..settings.clone() }, source, begin).unwrap()
    };
    let (whole, end) = of(4, Begin::Fresh);
    let (first, half) = of(2, Begin::Fresh);
    let half = bytes(&half);
    let file = StateFile::read("half", &half).unwrap();
    let (second, same_end) = of(2, Begin::Resume(&file));
    let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&whole.losses), [bits(&first.losses), bits(&second.losses)].concat(), "{}", network.name());
    for (name, tensor) in &end.tensors {
        assert_eq!(Some(tensor), same_end.tensors.get(name), "{name}");
    }
    assert_eq!(end, same_end);
    assert_eq!(end.metadata["step"], "4");
    let labels: Vec<&str> = second.rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels[..2], ["model", "resume"]);
    assert!(labels[2].contains('2') && labels.contains(&"end"), "{labels:?}");
    end
}

fn names(state: &TrainingState, part: &str) -> usize {
    state.tensors.keys().filter(|name| name.contains(part)).count()
}

#[test]
fn every_optimizer_goes_on_where_it_was() {
    for (kind, implementation, state) in [
        (OptimizerKind::Sgd, Implementation::Foreach, ""),
        (OptimizerKind::Momentum, Implementation::Loop, "momentum_buffer"),
        (OptimizerKind::Momentum, Implementation::Fused, "momentum_buffer"),
        (OptimizerKind::Adam, Implementation::Loop, "exp_avg_sq"),
        (OptimizerKind::AdamW, Implementation::Foreach, "exp_avg_sq"),
        (OptimizerKind::AdamW, Implementation::Fused, "exp_avg_sq"),
        (OptimizerKind::RmsProp, Implementation::Foreach, "square_avg"),
        (OptimizerKind::Adagrad, Implementation::Foreach, "sum"),
    ] {
        let mut settings = settings(kind, 8, 4);
        settings.optimizer.implementation = implementation;
        let end = goes_on(&*mlp(), &settings, &SYNTHETIC);
        let tensors = if state.is_empty() { 0 } else { names(&end, &format!(".{state}")) };
        assert_eq!(tensors, if state.is_empty() { 0 } else { 4 }, "{kind:?}");
    }
    let mut largest = settings(OptimizerKind::Adam, 8, 4);
    (largest.optimizer.amsgrad, largest.optimizer.capturable) = (true, true);
    assert_eq!(names(&goes_on(&*mlp(), &largest, &SYNTHETIC), "max_exp_avg_sq"), 4);
}

#[test]
fn every_kind_of_optimizer_goes_on() {
    for kind in OptimizerKind::all().filter(|kind| kind.is_computed()) {
        goes_on(&*mlp(), &settings(kind, 8, 4), &SYNTHETIC);
    }
}

#[test]
fn random_numbers_statistics_scales_and_data_go_on() {
    let dropout = network("gpt", |options| options.dropout = Some(0.3));
    let with_dropout = goes_on(&*dropout, &settings(OptimizerKind::AdamW, 2, 4), &SYNTHETIC);
    assert_ne!(with_dropout.metadata["random"], "3,0");
    let statistics = goes_on(&*network("resnet18", |_| {}), &settings(OptimizerKind::Momentum, 2, 4), &SYNTHETIC);
    let tracked = &statistics.tensors["layer1.0.bn1.num_batches_tracked"];
    assert_eq!((tracked.dtype, tracked.bytes.as_slice()), (DType::I64, 4i64.to_le_bytes().as_slice()));
    assert_eq!(names(&statistics, ".running_mean"), 20);
    let scaled = RunSettings { precision: Precision::AutocastFp16, ..settings(OptimizerKind::Adam, 8, 4) };
    let end = goes_on(&*mlp(), &scaled, &SYNTHETIC);
    assert_eq!(
        (end.tensors["scaler.scale"].dtype, end.tensors["scaler.growth_tracker"].dtype),
        (DType::F32, DType::I32)
    );
    // Three batches per epoch, two per step: the second half begins in another epoch.
    let data = Source::Dataset { data: Arc::new(digits().unwrap()), seed: 3 };
    let accumulated = RunSettings { accumulate: 2, ..settings(OptimizerKind::Adam, 400, 4) };
    assert_eq!(goes_on(&*mlp(), &accumulated, &data).metadata["data"], "digits");
}

#[test]
fn gradients_that_are_never_cleared_go_on() {
    let order: Vec<String> = ["input", "forward", "loss", "backward", "step"].map(String::from).to_vec();
    let schedule = Schedule::new(&order, Schedule::default().prefix).unwrap();
    let settings = RunSettings { schedule, ..settings(OptimizerKind::Sgd, 8, 4) };
    assert_eq!(names(&goes_on(&*mlp(), &settings, &SYNTHETIC), "gradient."), 4);
}

#[test]
fn saving_takes_no_memory_on_the_device() {
    let events = |save: bool| -> Vec<Event> {
        let device =
            Device::builder(Arc::new(Cpu::new().unwrap())).profile(Profile::torch_2_11(90)).history(true).build();
        let mut continuation = Continuation { save, ..Continuation::default() };
        let run = settings(OptimizerKind::Momentum, 8, 2);
        let go_on = &mut |_| ControlFlow::Continue(());
        training::train_from(&*network("simple-cnn", |_| {}), &device, &run, SYNTHETIC, &mut continuation, go_on)
            .unwrap();
        assert_eq!(continuation.saved.is_some(), save);
        device.with_ledger(|ledger| ledger.history().to_vec())
    };
    let with = events(true);
    assert!(with.len() > 100);
    assert_eq!(with, events(false));
}

type Damage<'a> = &'a dyn Fn(&mut TrainingState);

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let run = settings(OptimizerKind::Adam, 8, 1);
    let (_, state) = saved(&*mlp(), &cpu(), &run, &SYNTHETIC, Begin::Fresh).unwrap();
    let resumed = |state: &TrainingState, network: &dyn Architecture, run: &RunSettings| {
        let bytes = bytes(state);
        let file = StateFile::read("f", &bytes).unwrap();
        saved(network, &cpu(), run, &SYNTHETIC, Begin::Resume(&file)).map(|_| ()).unwrap_err()
    };
    let changed = |change: Damage| {
        let mut state = state.clone();
        change(&mut state);
        resumed(&state, &*mlp(), &run)
    };
    let sgd = resumed(&state, &*mlp(), &settings(OptimizerKind::Sgd, 8, 1));
    assert_eq!(sgd, "f: optimizer was \"adam\" there and is \"sgd\" here; --load takes the weights alone");
    assert!(resumed(&state, &*mlp(), &settings(OptimizerKind::Adam, 4, 1)).contains("batch was \"8\""));
    let half = RunSettings { precision: Precision::Bf16, ..run.clone() };
    assert!(resumed(&state, &*mlp(), &half).contains("precision was \"fp32\" there and is \"bf16\""));
    let wide = network("mlp", |options| (options.layers, options.width) = (Some(1), Some(13)));
    let wide = resumed(&state, &*wide, &run);
    assert_eq!(wide, "f: tensor \"0.weight\" is float32 [12, 64]; float32 [13, 64] is needed");
    let deep = network("mlp", |options| (options.layers, options.width) = (Some(2), Some(12)));
    assert!(resumed(&state, &*deep, &run).contains("tensor \"2.weight\" is float32 [10, 12]"));
    let cases: [(Damage, &str); 8] = [
        (&|s| drop(s.tensors.remove("2.bias")), "no tensor \"2.bias\""),
        (&|s| drop(s.tensors.remove("optimizer.1.exp_avg")), "no tensor \"optimizer.1.exp_avg\""),
        (&|s| drop(s.tensors.remove("optimizer.1.step")), "no tensor \"optimizer.1.step\""),
        (&|s| drop(s.metadata.remove("vramlab")), "it has no state of a run"),
        (&|s| drop(s.metadata.insert("step".into(), "-1".into())), "metadata: step: \"-1\" is not a number"),
        (&|s| drop(s.metadata.insert("random".into(), "7".into())), "metadata: random: \"7\" is not a number"),
        (
            &|s| drop(s.tensors.insert("4.bias".into(), s.tensors["2.bias"].clone())),
            "tensor \"4.bias\": this model has none",
        ),
        (
            &|s| drop(s.tensors.insert("optimizer.9.exp_avg".into(), s.tensors["2.bias"].clone())),
            "tensor \"optimizer.9.exp_avg\": this run keeps nothing of that name",
        ),
    ];
    for (change, message) in cases {
        let error = changed(change);
        assert!(error.contains(message), "{error}");
    }
    let nothing = saved(&*mlp(), &meta(), &run, &SYNTHETIC, Begin::Fresh).unwrap_err();
    assert_eq!(nothing, "save: meta computes nothing: there are no values");
}

/// Loads a file's weights, trains no step, and returns the state.
fn loaded(network: &dyn Architecture, file: &[u8]) -> Result<TrainingState, String> {
    let file = StateFile::read("f", file).map_err(|error| error.to_string())?;
    let none = settings(OptimizerKind::Sgd, 8, 0);
    saved(network, &cpu(), &none, &SYNTHETIC, Begin::Weights(&file)).map(|(_, state)| state)
}

#[test]
fn a_file_of_pythons_safetensors_is_a_models_weights() {
    let file = include_bytes!("../checkpoints/mlp.safetensors");
    let own = |width: usize| {
        network("mlp", |o| (o.layers, o.width, o.features, o.classes) = (Some(1), Some(width), Some(4), Some(2)))
    };
    let state = loaded(&*own(3), file).unwrap();
    let quarters = |start: i32, count: i32| -> Vec<u8> {
        (start..start + count).flat_map(|n| (n as f32 / 4.0).to_le_bytes()).collect()
    };
    for (name, expected) in [
        ("0.weight", quarters(-5, 12)),
        ("0.bias", quarters(1, 3)),
        ("2.weight", quarters(-2, 6)),
        ("2.bias", quarters(7, 2)),
    ] {
        assert_eq!(state.tensors[name].bytes, expected, "{name}");
    }
    assert!(
        loaded(&*own(5), file).unwrap_err().contains("tensor \"0.weight\" is float32 [3, 4]; float32 [5, 4] is needed")
    );
    let error = loaded(&*mlp(), file).unwrap_err();
    assert!(error.starts_with("f: tensor \"0.weight\""), "{error}");
    // Rows of the file are outputs of the layer: (w·x + b), ReLU, (w·h + b).
    let device = cpu();
    let model = Model::build(&*own(3), &Init::new(&device, DType::F32, 0)).unwrap();
    for parameter in &model.parameters {
        parameter.array().write_bytes(&state.tensors[parameter.path()].bytes).unwrap();
    }
    let x = Tensor::from_array(Array::from_slice(&device, &[1, 4], &[1f32, 0.0, 0.0, 2.0]).unwrap());
    let y = model.module.forward(&x).unwrap().array().to_f64().unwrap();
    let hidden =
        [-5.0 - 2.0 * 2.0 + 1.0, -1.0 + 2.0 * 2.0 + 2.0, 3.0 + 2.0 * 6.0 + 3.0].map(|v: f64| (v / 4.0).max(0.0));
    let out = |row: [f64; 3], bias: f64| (row[0] * hidden[0] + row[1] * hidden[1] + row[2] * hidden[2] + bias) / 4.0;
    assert_eq!(y, [out([-2.0, -1.0, 0.0], 7.0), out([1.0, 2.0, 3.0], 8.0)]);
}

#[test]
fn weights_alone_begin_a_run_anew() {
    let run = settings(OptimizerKind::Adam, 8, 2);
    let (_, state) = saved(&*mlp(), &cpu(), &run, &SYNTHETIC, Begin::Fresh).unwrap();
    let again = loaded(&*mlp(), &bytes(&state)).unwrap();
    let weights: Vec<&String> = state.tensors.keys().filter(|name| !name.starts_with("optimizer.")).collect();
    assert_eq!(weights.len(), again.tensors.len());
    assert!(weights.iter().all(|name| state.tensors[*name] == again.tensors[*name]));
    assert_eq!(again.metadata["step"], "0");
    // Names and sizes are checked even without values.
    let bytes = bytes(&state);
    let file = StateFile::read("f", &bytes).unwrap();
    for begin in [Begin::Weights(&file), Begin::Resume(&file)] {
        let mut continuation = Continuation { begin, ..Continuation::default() };
        let go_on = &mut |_| ControlFlow::Continue(());
        training::train_from(&*mlp(), &meta(), &run, SYNTHETIC, &mut continuation, go_on).unwrap();
    }
}

/// Makes a run over `devices` devices and saves it at its end.
fn saved_split(
    network: &dyn Architecture,
    devices: usize,
    run: &RunSettings,
    source: &Source,
    begin: Begin<'_>,
) -> (Vec<f64>, TrainingState) {
    let devices: Vec<Device> = (0..devices).map(|_| cpu()).collect();
    let settings = PipelineSettings { run: run.clone(), micro_batches: 1, schedule: Gpipe, cut: Cut::Balanced };
    let mut continuation = Continuation { begin, save: true, saved: None };
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = pipeline::train_from(network, &devices, &settings, source.clone(), &mut continuation, go_on);
    (result.unwrap_or_else(|failed| panic!("{}: {failed}", network.name())).losses, continuation.saved.unwrap())
}

/// If any part of a run is split, its steps and its file stay the same, except for the random states of further devices.
#[test]
fn a_split_run_goes_on_unsplit_and_the_reverse() {
    let digits = Source::Dataset { data: Arc::new(digits().unwrap()), seed: 3 };
    let scaled = |mut run: RunSettings| {
        (run.precision, run.clip_grad_norm) = (Precision::AutocastFp16, Some(1.0));
        run
    };
    for (network, run, source) in [
        (network("mlp", |o| o.layers = Some(3)), scaled(settings(OptimizerKind::AdamW, 8, 2)), digits),
        (network("gpt2", |_| {}), settings(OptimizerKind::Adam, 2, 2), SYNTHETIC),
        (network("resnet18", |_| {}), settings(OptimizerKind::Momentum, 2, 2), SYNTHETIC),
    ] {
        let network = &*network;
        let of = |devices: usize, begin: Begin<'_>| match devices {
            0 => saved(network, &cpu(), &run, &source, begin).map(|(result, state)| (result.losses, state)).unwrap(),
            n => saved_split(network, n, &run, &source, begin),
        };
        let (first, half) = of(0, Begin::Fresh);
        let half = bytes(&half);
        let half = StateFile::read("half", &half).unwrap();
        let (second, end) = of(0, Begin::Resume(&half));
        for (before, after) in [(2, 0), (0, 2), (2, 3), (3, 2)] {
            let (losses, state) = of(before, Begin::Fresh);
            assert_eq!(losses, first, "{} on {before}", network.name());
            let state = bytes(&state);
            let (losses, state) = of(after, Begin::Resume(&StateFile::read("split", &state).unwrap()));
            assert_eq!(losses, second, "{} on {before}, then {after}", network.name());
            assert_eq!(state.tensors, end.tensors, "{} on {before}, then {after}", network.name());
            assert_eq!(state.metadata.contains_key("random.1"), after > 0);
        }
    }
}
