//! Programs drawn at random: each recording contains its program, and a test with its name runs it.

use lab::Error;
use lab::model_file::{FileModel, parse};
use lab::models::{Architecture, ModelOptions, Recompute, architecture};
use lab::record::Row;
use lab::training::{RunSettings, Source, Trainer};
use memcore::Device;
use serde_json::Value;

use super::compare::check_drawn;
use super::recording::Recording;
use super::run::scripts;

/// Network and training of a program: a model file, or one with only the training of a decoder of the zoo.
fn program(name: &str, program: &Value) -> Result<(Box<dyn Architecture>, RunSettings), Error> {
    let text = program["text"].as_str().unwrap();
    let Some(zoo) = program.get("zoo") else {
        let file = parse(name, text)?;
        let settings = file.settings(1)?;
        return Ok((file.architecture, settings));
    };
    // The file's own network is not used.
    let network = "[input]\nshape = [1]\n[[layer]]\ntype = \"relu\"\n[loss]\ntype = \"mse\"\n";
    let text = text.replacen("\n[", &format!("\n{network}["), 1);
    let file = FileModel { architecture: architecture("gpt", &decoder(zoo))?, ..parse(name, &text)? };
    let settings = file.settings(1)?;
    Ok((file.architecture, settings))
}

fn decoder(zoo: &Value) -> ModelOptions {
    let size = |key: &str| zoo[key].as_u64().map(|n| n as usize);
    let flag = |key: &str| zoo[key].as_bool().unwrap_or(false);
    let blocks = zoo["checkpoint"].as_array().map(|b| b.iter().filter_map(Value::as_u64).map(|b| b as usize).collect());
    ModelOptions {
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
    }
}

/// Runs to the last step, or until memory runs out.
fn train(architecture: &dyn Architecture, device: &Device, settings: &RunSettings) -> Vec<Row> {
    let mut trainer = Trainer::build(architecture, device, settings, Source::Synthetic { seed: 0 }, "").unwrap();
    for step in 0..settings.steps {
        match trainer.step(step) {
            Ok(_) => {}
            Err(Error::Core(memcore::Error::OutOfMemory(_))) => break,
            Err(other) => panic!("{other}"),
        }
    }
    trainer.finish(None)
}

fn check(name: &str) {
    let recording = Recording::load(&format!("drawn/{name}"));
    let (architecture, settings) = program(name, recording.program()).unwrap();
    let run = |device: &Device| train(&*architecture, device, &settings);
    check_drawn(&recording, name, &run, settings.precision.autocast().is_some());
}

scripts! {
    dilated => check;
    dilated_2_15 => check;
    dilated_input_grad => check;
    eager_without_graph => check;
    efficient_one_head => check;
    efficient_without_graph => check;
    efficient_without_graph_2_15 => check;
    flash_narrow_heads => check;
    fused_with_scaler => check;
    group_norm_bf16 => check;
    group_norm_fp16 => check;
    group_norm_fp16_2_15 => check;
    loop_maximize => check;
    loop_maximize_2_15 => check;
    norm_offsets_2_15 => check;
    one_value => check;
    out_of_memory => check;
    out_of_memory_expandable => check;
    packed_leaves => check;
    packed_leaves_2_15 => check;
    recomputed_activation => check;
    recomputed_attention => check;
    recomputed_convolution_2_15 => check;
    recomputed_flash => check;
    recomputed_mish => check;
    recomputed_norm => check;
    rmsprop_loop => check;
    upsample_autocast => check;
}
