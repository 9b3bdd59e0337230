//! Networks that PyTorch exported with their weights, trained on a device: their losses must be those that PyTorch recorded
//! (`golden/exported/losses.json`). Backends include this file by its path.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use lab::exported;
use lab::training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::Device;
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
        let path = folder.path().join(format!("{name}.pt2"));
        let mut archive = Vec::new();
        let compressed = golden(&format!("{name}-weights.pt2.gz"));
        flate2::read::GzDecoder::new(compressed.as_slice()).read_to_end(&mut archive).unwrap();
        std::fs::write(&path, archive).unwrap();
        let model = exported::load(&path, None).unwrap();
        let optimizer = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
        let settings = RunSettings::new(recorded.batch, theirs.len(), optimizer);
        let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
        let result = exported::train_from(&model, &device(), &settings, source, &mut Continuation::default(), progress);
        let ours = result.unwrap().losses;
        assert_eq!(ours.len(), 20);
        for (step, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert!(
                (ours - theirs).abs() < 1e-4 * theirs.abs().max(1.0),
                "{name}, step {step}: {ours}, PyTorch {theirs}"
            );
        }
    }
}
