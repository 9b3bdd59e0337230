//! Networks split over devices: losses and gradients equal those of the unsplit network; memory of each device; refusals.

use std::ops::ControlFlow;
use std::sync::Arc;

use backend_cpu::Cpu;
use conformance::Reference;
use lab_models::{ALL, Architecture, Model, ModelOptions, Recompute, architecture};
use lab_training::pipeline::{self, Cut, PipelineResult, PipelineSettings, Schedule, SplitStep};
use lab_training::{self as training, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source, Trainer};
use memcore::backend::Meta;
use memcore::nn::{Init, Parameter};
use memcore::{Array, DType, Device, Error, Tensor, ops};

fn cpu() -> Device {
    Device::builder(Arc::new(Cpu::new().unwrap())).build()
}

fn meta() -> Device {
    Device::builder(Arc::new(Meta::default())).build()
}

fn settings(batch: usize, micro_batches: usize, schedule: Schedule) -> PipelineSettings {
    let mut run = RunSettings::new(batch, 2, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    run.seed = 7;
    PipelineSettings { run, micro_batches, schedule, cut: Cut::Balanced }
}

const SOURCE: Source = Source::Synthetic { seed: 7 };

fn devices(open: fn() -> Device, n: usize) -> Vec<Device> {
    (0..n).map(|_| open()).collect()
}

fn run(network: &dyn Architecture, devices: &[Device], settings: &PipelineSettings) -> PipelineResult {
    pipeline::train(network, devices, settings, SOURCE, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Names and sizes of the parameters.
fn parameters(model: &[Parameter]) -> Vec<(String, Vec<usize>)> {
    model.iter().map(|p| (p.path().to_string(), p.array().dims().to_vec())).collect()
}

#[test]
fn pieces_have_the_parameters_of_the_whole() {
    for (name, _) in ALL {
        let network = architecture(name, &ModelOptions::small(name)).unwrap();
        if let Some(reason) = network.indivisible() {
            assert_eq!(*name, "seq2seq-attention", "{reason}");
            continue;
        }
        let whole = Model::build(&*network, &Init::new(&meta(), DType::F32, 0)).unwrap();
        let init = Init::new(&meta(), DType::F32, 0);
        let pieces = network.pieces(&|_| init.clone()).unwrap();
        assert!(!pieces.is_empty());
        assert_eq!(parameters(&init.parameters()), parameters(&whole.parameters), "{name}");
    }
}

/// Losses, and the gradients of the last step.
fn trained(network: &dyn Architecture, devices: &[Device], settings: &PipelineSettings) -> (Vec<f64>, Vec<Vec<f32>>) {
    let mut trainer = pipeline::trainer(network, devices, settings, SOURCE).unwrap();
    let losses = (0..settings.run.steps).map(|step| trainer.step(step).unwrap().unwrap()).collect();
    let gradients = trainer.phases().parameters().iter().map(|p| p.grad().unwrap().to_vec().unwrap()).collect();
    (losses, gradients)
}

fn mlp() -> Box<dyn Architecture> {
    architecture("mlp", &ModelOptions { layers: Some(4), width: Some(32), ..ModelOptions::default() }).unwrap()
}

#[test]
fn values_and_gradients_cross_unchanged() {
    let (a, b) = (cpu(), cpu());
    let values: Vec<f32> = (0..24).map(|i| i as f32 * 0.37 - 3.0).collect();
    let x = Tensor::leaf(Array::from_slice(&a, &[4, 6], &values).unwrap());
    let there = ops::to_device(&x, &b).unwrap();
    assert_eq!(there.to_vec::<f32>().unwrap(), values);
    let turned = x.array().transpose(0, 1).unwrap();
    assert_eq!(turned.to_device(&b).unwrap().to_vec::<f32>().unwrap(), turned.to_vec::<f32>().unwrap());
    let part = x.array().narrow(1, 2, 3).unwrap();
    assert_eq!(part.to_device(&b).unwrap().to_vec::<f32>().unwrap(), part.to_vec::<f32>().unwrap());
    let half = x.array().cast(DType::F16).unwrap();
    assert_eq!(half.to_device(&b).unwrap().to_f64().unwrap(), half.to_f64().unwrap());
    let seed: Vec<f32> = (0..24).map(|i| 1.0 / (i as f32 + 1.0)).collect();
    there.backward_with(Array::from_slice(&b, &[4, 6], &seed).unwrap(), false).unwrap();
    let grad = x.grad().unwrap();
    assert!(grad.device().is_same(&a));
    assert_eq!(grad.to_vec::<f32>().unwrap(), seed);
    for (from, to) in [(cpu(), meta()), (meta(), cpu())] {
        let x = Array::empty(&from, &[3], DType::F32).unwrap();
        assert!(matches!(x.to_device(&to), Err(Error::NoValues { op: "to_device", .. })));
    }
}

#[test]
fn a_split_network_computes_what_the_whole_one_does() {
    for name in ["mlp", "simple-cnn", "larger-conv", "gpt", "resnet18"] {
        let network = architecture(name, &ModelOptions::small(name)).unwrap();
        let settings = settings(8, 1, Schedule::Gpipe);
        let whole = training::train(&*network, &cpu(), &settings.run, SOURCE, &mut |_| ControlFlow::Continue(()));
        let (losses, gradients) = trained(&*network, &devices(cpu, 2), &settings);
        assert_eq!(losses, whole.unwrap().losses, "{name}: to the bit");
        assert_eq!(gradients, trained(&*network, &[cpu()], &settings).1, "{name}: to the bit");
    }
}

#[test]
fn devices_of_different_kinds_share_a_network() {
    let network = mlp();
    let settings = settings(24, 4, Schedule::OneForwardOneBackward);
    let other = || Device::builder(Arc::new(Reference::default())).build();
    let (one, mixed) = (trained(&*network, &[cpu()], &settings), trained(&*network, &[cpu(), other()], &settings));
    for (a, b) in one.0.iter().zip(&mixed.0) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}: each kind has its own rounding");
    }
    assert_eq!(mixed.1.len(), one.1.len());
}

#[test]
fn micro_batches_give_the_gradients_of_the_batch() {
    let network = mlp();
    let whole = trained(&*network, &[cpu()], &settings(24, 1, Schedule::Gpipe));
    let accumulated = trained(&*network, &[cpu()], &settings(24, 4, Schedule::OneForwardOneBackward));
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
        for n in [2, 3, 5] {
            let split = trained(&*network, &devices(cpu, n), &settings(24, 4, schedule));
            assert_eq!(split, accumulated, "{n} devices add the same parts in the same order");
        }
    }
    let apart = |a: &[Vec<f32>], b: &[Vec<f32>]| {
        let pairs = a.iter().flatten().zip(b.iter().flatten());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    let largest = whole.1.iter().flatten().fold(0f32, |m, g| m.max(g.abs()));
    let apart = apart(&whole.1, &accumulated.1);
    assert!(apart > 0.0 && apart < 1e-4 * largest, "{apart} of {largest}: rounding, and no more");
}

#[test]
fn a_stage_holds_as_many_micro_batches_as_its_schedule_says() {
    let network = mlp();
    let (stages, parts, batch) = (5, 8, 64);
    // Result of the ReLU, and what came in; both [8, 32] in f32. The last has log-probabilities [8, 10] and the weight of the classes instead.
    let each = |stage: usize| match stage {
        0 => 1024,
        4 => 1024 + 512 + 512,
        _ => 2048,
    };
    for (schedule, in_flight) in
        [(Schedule::Gpipe, [8, 8, 8, 8, 8]), (Schedule::OneForwardOneBackward, [5, 4, 3, 2, 1])]
    {
        let on = |open| run(&*network, &devices(open, stages), &settings(batch, parts, schedule));
        let result = on(meta);
        for (stage, figures) in result.stages.iter().enumerate() {
            assert_eq!(figures.in_flight, in_flight[stage], "{schedule:?}, stage {stage}");
            assert_eq!(figures.activation_bytes, in_flight[stage] as u64 * each(stage), "{schedule:?}, stage {stage}");
            assert_eq!(figures.rows.last().unwrap().allocated, 0, "nothing is left behind");
            let crossings = u64::from(stage > 0) + u64::from(stage < 4);
            // Two steps; what goes forward comes back as a gradient of the same size.
            assert_eq!(figures.sent_bytes, crossings * 2 * 4 * 32 * batch as u64);
            assert_eq!(figures.received_bytes, figures.sent_bytes);
        }
        for (here, there) in on(cpu).stages.iter().zip(&result.stages) {
            assert_eq!(here.rows, there.rows, "a device without values sees the same, row by row");
        }
    }
}

#[test]
fn options_go_together() {
    let recomputed = |recompute| ModelOptions { layers: Some(4), recompute, ..ModelOptions::small("gpt") };
    let kept = architecture("gpt", &recomputed(Recompute::None)).unwrap();
    for recompute in [Recompute::Blocks, Recompute::Sqrt, Recompute::These(vec![1, 3])] {
        let network = architecture("gpt", &recomputed(recompute.clone())).unwrap();
        let mut settings = settings(8, 2, Schedule::OneForwardOneBackward);
        settings.run.accumulate = 2;
        let (two, one) = (devices(cpu, 2), devices(cpu, 2));
        assert_eq!(trained(&*network, &two, &settings), trained(&*kept, &one, &settings), "{recompute}: to the bit");
        let peak = |devices: &[Device]| devices.iter().map(|d| d.usage().peak_bytes()).max().unwrap();
        assert!(peak(&two) < peak(&one), "{recompute} saves memory");
    }
    let mut settings = settings(8, 2, Schedule::Gpipe);
    settings.run.precision = Precision::AutocastBf16;
    settings.run.optimizer = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
    let one = trained(&*kept, &[cpu()], &settings);
    assert_eq!(trained(&*kept, &devices(cpu, 3), &settings), one);
}

#[test]
fn what_cannot_go_together_is_refused_with_the_reason() {
    let base = settings(8, 2, Schedule::Gpipe);
    let refused = |network: &dyn Architecture, devices: &[Device], settings: &PipelineSettings| {
        pipeline::trainer(network, devices, settings, SOURCE).err().unwrap().to_string()
    };
    let network = mlp();
    let two = || devices(meta, 2);
    let with = |change: &dyn Fn(&mut PipelineSettings)| {
        let mut settings = base.clone();
        change(&mut settings);
        refused(&*network, &two(), &settings)
    };
    assert!(with(&|s| s.micro_batches = 3).contains("micro-batches: 3 micro-batches of a batch of 8"));
    assert!(with(&|s| s.micro_batches = 0).contains("micro-batches"));
    assert!(with(&|s| s.cut = Cut::Before(vec![9])).contains("cut"));
    assert!(refused(&*network, &devices(meta, 6), &base).contains("6 devices for a network of 5 pieces"));
    assert!(refused(&*network, &[cpu(), meta()], &base).contains("meta has no values"));
    let attention = architecture("seq2seq-attention", &ModelOptions::default()).unwrap();
    assert!(refused(&*attention, &two(), &base).contains("seq2seq-attention cannot be split"));
}

/// All devices share one scale and one norm.
#[test]
fn loss_scaling_and_clipping_are_those_of_one_device() {
    let mut settings = settings(8, 2, Schedule::OneForwardOneBackward);
    settings.run.precision = Precision::AutocastFp16;
    settings.run.clip_grad_norm = Some(0.05);
    settings.run.steps = 3;
    let network = mlp();
    let one = trained(&*network, &[cpu()], &settings);
    assert_eq!(trained(&*network, &devices(cpu, 3), &settings), one, "to the bit");
    let norm = |gradients: &[Vec<f32>]| gradients.iter().flatten().map(|g| f64::from(g * g)).sum::<f64>().sqrt();
    assert!((norm(&one.1) - 0.05).abs() < 1e-3, "clipped: {}", norm(&one.1));
    settings.run.clip_grad_norm = None;
    assert!(norm(&trained(&*network, &devices(cpu, 2), &settings).1) > 0.06);
}

/// If the loss overflows float16, no device makes the step.
#[test]
fn a_step_that_overflows_on_one_device_is_skipped_on_all() {
    let mut settings = settings(4, 1, Schedule::Gpipe);
    (settings.run.precision, settings.run.steps) = (Precision::AutocastFp16, 1);
    let network = mlp();
    let devices = devices(cpu, 2);
    let mut trainer = pipeline::trainer(&*network, &devices, &settings, SOURCE).unwrap();
    let values = |trainer: &Trainer<SplitStep>| -> Vec<Vec<f32>> {
        trainer.phases().parameters().iter().map(|p| p.array().to_vec().unwrap()).collect()
    };
    // Only what the second device computes is too large.
    let last = trainer.phases().parameters().len() - 2;
    let weight = &trainer.phases().parameters()[last];
    assert!(weight.array().device().is_same(&devices[1]));
    weight.set(&vec![3e4; weight.array().numel()]).unwrap();
    let before = values(&trainer);
    trainer.step(0).unwrap();
    assert_eq!(values(&trainer), before);
}

/// With one micro-batch the two gradients of a tied table are added once: to the bit. With more, in another order: to rounding.
#[test]
fn tied_embeddings_lie_on_both_devices_and_stay_equal() {
    let network = architecture("gpt2", &ModelOptions::small("gpt2")).unwrap();
    for (micro_batches, exact) in [(1, true), (2, false)] {
        let mut settings = settings(4, micro_batches, Schedule::Gpipe);
        settings.run.steps = 3;
        let (one, two) = (devices(cpu, 1), devices(cpu, 2));
        let (whole, split) = (trained(&*network, &one, &settings), trained(&*network, &two, &settings));
        if exact {
            assert_eq!(split, whole);
        }
        for (a, b) in split.0.iter().zip(&whole.0) {
            assert!((a - b).abs() < 1e-5, "{a} and {b}");
        }
        let figures = run(&*network, &two, &settings);
        let stages: u64 = figures.stages.iter().map(|stage| stage.parameters).sum();
        assert_eq!(stages, figures.parameters + 24 * 16, "the table of 24 tokens is there twice");
    }
}
