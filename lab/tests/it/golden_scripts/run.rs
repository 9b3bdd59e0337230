//! Runs a model file or a named network and returns the rows.

use lab::model_file::{FileModel, parse};
use lab::models::{Architecture, ModelOptions, architecture};
use lab::record::Row;
use lab::training::{RunSettings, Source, Trainer};
use memcore::Device;

use super::compare::{check, check_unordered_frees};

/// Trains with these settings; every label begins with `tag`.
pub(crate) fn train(architecture: &dyn Architecture, device: &Device, settings: &RunSettings, tag: &str) -> Vec<Row> {
    let mut trainer = Trainer::build(architecture, device, settings, Source::Synthetic { seed: 0 }, tag).unwrap();
    for step in 0..settings.steps {
        trainer.step(step).unwrap();
    }
    trainer.finish(None)
}

/// Trains a network of the zoo in its default form, with these lines of a model file.
pub(crate) fn zoo(name: &str, lines: &str) -> (Box<dyn Architecture>, RunSettings) {
    zoo_with(name, ModelOptions::default(), lines)
}

pub(crate) fn zoo_with(name: &str, options: ModelOptions, lines: &str) -> (Box<dyn Architecture>, RunSettings) {
    let architecture = architecture(name, &options).unwrap();
    // The file's own network is not used.
    let network = "[input]\nshape = [1]\n[[layer]]\ntype = \"relu\"\n[loss]\ntype = \"mse\"\n";
    let text = if lines.starts_with('[') {
        format!("{network}{lines}")
    } else {
        lines.replacen("\n[", &format!("\n{network}["), 1)
    };
    let file = FileModel { architecture, ..parse(name, &text).unwrap() };
    let settings = file.settings(1).unwrap();
    (file.architecture, settings)
}

/// Runs a model file and compares with the recording `name`.
pub(crate) fn check_file(name: &str, text: &str) {
    let model = parse(name, text).unwrap();
    let settings = model.settings(1).unwrap();
    check_run(name, &*model.architecture, &settings);
}

/// Runs a network of the zoo and compares with the recording `name`.
pub(crate) fn check_zoo(name: &str, network: &str, lines: &str) {
    check_model(name, network, ModelOptions::default(), lines);
}

/// The same for another form of the network.
pub(crate) fn check_model(name: &str, network: &str, options: ModelOptions, lines: &str) {
    let (architecture, settings) = zoo_with(network, options, lines);
    check_run(name, &*architecture, &settings);
}

/// Runs a network and compares with the recording `name`.
pub(crate) fn check_run(name: &str, architecture: &dyn Architecture, settings: &RunSettings) {
    let run = |device: &Device| train(architecture, device, settings, "");
    match settings.precision.autocast() {
        None => check(name, run),
        Some(_) => check_unordered_frees(name, run),
    }
}

/// Defines tests with these names, each with its run.
macro_rules! scripts {
    ($($name:ident => $check:expr;)*) => {
        $(#[test]
        fn $name() {
            $check(stringify!($name));
        })*
    };
}
pub(crate) use scripts;
