//! The worked examples of model files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conformance::Reference;
use lab_imports::model_file::{FileModel, load};
use lab_models::{Architecture, ModelOptions, architecture};
use lab_training::record::Row;
use lab_training::{RunSettings, Source, Trainer};
use memcore::backend::Meta;
use memcore::{Device, Profile};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models")
}

fn example(name: &str) -> FileModel {
    load(&directory().join(name)).unwrap()
}

fn settings(model: &FileModel) -> RunSettings {
    RunSettings::new(model.batch.unwrap(), model.steps.unwrap(), model.optimizer.unwrap())
}

fn meta() -> Device {
    Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).history(true).build()
}

/// The rows of a run, and the parameters' paths.
fn rows(device: &Device, architecture: &dyn Architecture, settings: &RunSettings) -> (Vec<Row>, Vec<String>) {
    let mut trainer = Trainer::build(architecture, device, settings, Source::Synthetic { seed: 0 }, "").unwrap();
    let paths = trainer.phases().network.model.parameters.iter().map(|p| p.path().to_string()).collect();
    for step in 0..settings.steps {
        trainer.step(step).unwrap();
    }
    (trainer.finish(Some("end")), paths)
}

#[test]
fn the_simple_cnn_of_a_file_is_the_built_in_one_to_the_byte() {
    let file = example("simple-cnn.toml");
    let built_in = architecture("simple-cnn", &ModelOptions::default()).unwrap();
    let settings = settings(&file);
    assert_eq!(settings.batch, built_in.defaults().batch);
    let (a, b) = (meta(), meta());
    assert_eq!(rows(&a, &*file.architecture, &settings), rows(&b, &*built_in, &settings));
    let events = |device: &Device| device.with_ledger(|ledger| ledger.history().to_vec());
    assert_eq!(events(&a), events(&b));
}

#[test]
fn every_example_loads_and_trains_without_values() {
    let mut seen = 0;
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let model = load(&path).unwrap_or_else(|error| panic!("{error}"));
        let settings = RunSettings { steps: 2, ..settings(&model) };
        let device = meta();
        let (rows, _) = rows(&device, &*model.architecture, &settings);
        assert_eq!(rows.len(), 2 + 2 * 6, "{}", path.display());
        device.release_workspaces();
        assert_eq!(device.stats().allocated_bytes.all.current, 0, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn the_repeated_layers_of_the_transformer_have_their_own_parameters() {
    let model = example("tiny-transformer.toml");
    let (_, paths) = rows(&meta(), &*model.architecture, &RunSettings { steps: 1, ..settings(&model) });
    assert_eq!(paths.len(), 1 + 1 + 2 * (2 + 4 + 2 + 4) + 2 + 1);
    assert!(paths.contains(&"blocks.1.feed-forward.widen.weight".to_string()), "{paths:?}");
    let mut unique = paths.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), paths.len());
}

/// The losses of the first steps on a device with values.
fn losses(model: &FileModel, batch: usize, steps: usize) -> Vec<f64> {
    let device = Device::builder(Arc::new(Reference::default())).build();
    let settings = RunSettings { batch, ..settings(model) };
    let source = Source::Synthetic { seed: 0 };
    let mut trainer = Trainer::build(&*model.architecture, &device, &settings, source, "").unwrap();
    (0..steps).map(|step| trainer.step(step).unwrap().unwrap()).collect()
}

#[test]
fn the_examples_learn() {
    for (name, steps) in [("digits-mlp.toml", 10), ("tiny-transformer.toml", 3)] {
        let losses = losses(&example(name), 2, steps);
        assert!(losses[steps - 1] < losses[0], "{name}: {losses:?}");
    }
    let simple = losses(&example("simple-cnn.toml"), 1, 2);
    assert!(simple[1] < simple[0], "{simple:?}");
}
