//! Programs drawn at random: each recording holds the program that it is of.

use lab::Error;
use lab::model_file::{FileModel, parse};
use lab::models::{Architecture, ModelOptions, Recompute, architecture};
use lab::record::Row;
use lab::training::{RunSettings, Source, Trainer};
use memcore::Device;
use serde_json::Value;

use crate::compare::differences;
use crate::recording::Recording;

/// The network of a program and how it is trained.
fn program(name: &str, program: &Value) -> Result<(Box<dyn Architecture>, RunSettings), Error> {
    let text = program["text"].as_str().unwrap();
    let Some(zoo) = program.get("zoo") else {
        let file = parse(name, text)?;
        let settings = file.settings(1)?;
        return Ok((file.architecture, settings));
    };
    let size = |key: &str| zoo[key].as_u64().map(|n| n as usize);
    let flag = |key: &str| zoo[key].as_bool().unwrap_or(false);
    let blocks = zoo["checkpoint"].as_array().map(|b| b.iter().filter_map(Value::as_u64).map(|b| b as usize).collect());
    let options = ModelOptions {
        layers: size("layers"),
        width: size("width"),
        heads: size("heads"),
        sequence: size("sequence"),
        vocabulary: size("vocabulary"),
        tied: flag("tied"),
        fused_attention: flag("fused"),
        dropout: zoo["dropout"].as_f64(),
        recompute: blocks.map_or(Recompute::None, Recompute::These),
        ..ModelOptions::default()
    };
    let network = "[input]\nshape = [1]\n[[layer]]\ntype = \"relu\"\n[loss]\ntype = \"mse\"\n";
    let text = text.replacen("\n[", &format!("\n{network}["), 1);
    let file = FileModel { architecture: architecture("gpt", &options)?, ..parse(name, &text)? };
    let settings = file.settings(1)?;
    Ok((file.architecture, settings))
}

fn train(architecture: &dyn Architecture, device: &Device, settings: &RunSettings) -> Result<Vec<Row>, Error> {
    let mut trainer = Trainer::new(architecture, device, settings, Source::Synthetic { seed: 0 }, "")?;
    for step in 0..settings.steps {
        match trainer.step(step) {
            Ok(_) => {}
            Err(Error::Core(memcore::Error::OutOfMemory(_))) => break,
            Err(other) => return Err(other),
        }
    }
    Ok(trainer.finish(None))
}

/// What differs, or why it is refused.
fn compare(name: &str, recording: &Recording) -> Result<Vec<String>, String> {
    let (architecture, settings) = program(name, recording.program()).map_err(|error| error.to_string())?;
    let device = recording.device();
    let rows = train(&*architecture, &device, &settings).map_err(|error| error.to_string())?;
    Ok(differences(recording, &device, rows, settings.precision.autocast().is_some()))
}

#[test]
#[ignore]
fn folder() {
    let folder = std::env::var("DRAWN").unwrap();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (mut same, mut refused, mut different) = (0, 0, 0);
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let recording = Recording::open(&path);
        let result = std::panic::catch_unwind(|| compare(&name, &recording));
        match result {
            Ok(Ok(differences)) if differences.is_empty() => same += 1,
            Ok(Ok(differences)) => {
                different += 1;
                println!("DIFFERS {name}\n    {}", differences.join("\n    "));
            }
            Ok(Err(problem)) => {
                refused += 1;
                println!("REFUSED {name}: {problem}");
            }
            Err(_) => println!("PANIC {name}"),
        }
    }
    println!("same {same} different {different} refused {refused}");
}
