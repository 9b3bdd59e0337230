//! Networks that PyTorch exported with their weights, trained on a device: their losses must be those that PyTorch recorded
//! (`golden/exported/losses.json`). Backends include this file by its path.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use lab::exported;
use lab::training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::Device;
use memcore::optim::Implementation;
use serde::Deserialize;

#[derive(Deserialize)]
struct Losses {
    batch: usize,
    losses: BTreeMap<String, Vec<f64>>,
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/imports/tests/golden/exported").join(name))
        .unwrap()
}

/// Trains every network on a device of its own for as many steps as are recorded.
pub(crate) fn are_pytorchs(device: impl Fn() -> Device) {
    let recorded: Losses = serde_json::from_slice(&golden("losses.json")).unwrap();
    assert_eq!(recorded.losses.len(), 9);
    let folder = tempfile::tempdir().unwrap();
    for (name, theirs) in &recorded.losses {
        let model = with_weights(name, folder.path());
        let optimizer = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
        let settings = RunSettings::new(recorded.batch, theirs.len(), optimizer);
        are_near(&model, &device(), &settings, theirs, (name, 1e-4));
    }
}

/// An exported network with its weights.
fn with_weights(name: &str, folder: &Path) -> exported::Exported {
    let path = folder.join(format!("{name}.pt2"));
    let mut archive = Vec::new();
    let compressed = golden(&format!("{name}-weights.pt2.gz"));
    flate2::read::GzDecoder::new(compressed.as_slice()).read_to_end(&mut archive).unwrap();
    std::fs::write(&path, archive).unwrap();
    exported::load(&path, None).unwrap()
}

/// Trains a network with these settings: each of the first 20 losses is PyTorch's, within a share of it, or of 1.
fn are_near(
    model: &exported::Exported,
    device: &Device,
    settings: &RunSettings,
    theirs: &[f64],
    (name, within): (&str, f64),
) {
    let (source, on_step) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let begin = &mut Continuation::default();
    let ours = exported::train_from(model, device, settings, source, begin, on_step).unwrap().losses;
    assert_eq!((ours.len(), theirs.len()), (20, 20));
    for (step, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let near = (ours - theirs).abs() < within * theirs.abs().max(1.0);
        assert!(near, "{name}, step {step}: {ours}, PyTorch {theirs}");
    }
}

/// Trains networks of which some parameters are frozen, and one with adapters of PEFT alone: the first 20 losses are PyTorch's.
#[allow(dead_code)]
pub(crate) fn are_pytorchs_of_a_part(device: impl Fn() -> Device) {
    let recorded: Losses = serde_json::from_slice(&golden("tuned_losses.json")).unwrap();
    assert_eq!(recorded.losses.len(), 5);
    let folder = tempfile::tempdir().unwrap();
    for (name, theirs) in &recorded.losses {
        let (network, patterns) = name.split_once(' ').unwrap();
        let model = with_weights(network, folder.path());
        let optimizer = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
        let freeze = Some(patterns.parse().unwrap());
        let settings = RunSettings { freeze, ..RunSettings::new(recorded.batch, theirs.len(), optimizer) };
        are_near(&model, &device(), &settings, theirs, (name, 1e-5));
    }
}

/// Trains a network with every optimizer of `torch.optim`, in both of its forms: the first 20 losses are PyTorch's.
// wgpu's tests include this file, and have a suite of their own for optimizers.
#[allow(dead_code)]
pub(crate) fn are_pytorchs_with_every_optimizer(device: impl Fn() -> Device) {
    let recorded: Losses = serde_json::from_slice(&golden("optimizer_losses.json")).unwrap();
    assert_eq!(recorded.losses.len(), 17);
    let folder = tempfile::tempdir().unwrap();
    let model = with_weights("cnn", folder.path());
    for (name, theirs) in &recorded.losses {
        let kind = OptimizerKind::parse(name).unwrap();
        for implementation in [Implementation::Loop, Implementation::Foreach] {
            let optimizer = OptimizerSettings { implementation, ..OptimizerSettings::new(kind, 1e-3) };
            if optimizer.build(Vec::new()).is_err() {
                continue;
            }
            let settings = RunSettings::new(recorded.batch, theirs.len(), optimizer);
            are_near(&model, &device(), &settings, theirs, (&format!("{name}, {implementation:?}"), 1e-5));
        }
    }
}
