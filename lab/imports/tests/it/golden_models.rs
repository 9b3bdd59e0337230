//! Compares models of the `transformers` library (full-size, and small with unusual configurations; three training steps each) with recorded runs of
//! the real PyTorch, in every row to the byte.

use std::io::Read;
use std::sync::Arc;

use crate::transformers::recompute;
use flate2::read::GzDecoder;
use lab_imports::huggingface::{
    Attention, AttentionMask, Keep, Options, Pretrained, Script, library_trainer, parse, trainer,
};
use lab_models::{Lora, Quantized};
use lab_training::record::Row;
use lab_training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Source};
use memcore::backend::{Backend, DeviceProfile, Meta};
use memcore::memory::{AllocatorConfig, Caching};
use memcore::optim::Implementation;
use memcore::profile::Convolution;
use memcore::{Device, Profile};
use serde_json::Value;

/// The recorded runs of a family.
pub(crate) fn recorded(family: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/models/{family}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["runs"].as_array().unwrap().clone()
}

/// A card with the recordings' memory and allocator settings.
pub(crate) fn device(options: &Value) -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    let backend: Arc<dyn Backend> = Arc::new(Meta::new(card));
    let sm = options["env"]["FAKECUDA_SM"].as_str().map_or(90, |sm| sm.parse().unwrap());
    let mut profile = Profile::torch_2_11(sm);
    if let Some(bytes) = options["env"]["FAKECUDNN_WS"].as_str() {
        profile.convolution = Convolution::Cudnn { workspace_bytes: bytes.parse().unwrap() };
        // The stand-in for cuDNN names the same bytes for every plan.
        profile.cudnn_attention_repeats_gradients = false;
    }
    let builder = Device::builder(backend.clone()).profile(profile);
    match options["env"]["PYTORCH_ALLOC_CONF"].as_str() {
        Some(text) => {
            let config = AllocatorConfig::parse(text).unwrap();
            builder.allocator(Box::new(Caching::new(backend, config).unwrap())).build()
        }
        None => builder.build(),
    }
}

/// The precision of a recording.
pub(crate) fn precision(name: &str) -> Precision {
    match name {
        "autocast" => Precision::AutocastBf16,
        "amp16" => Precision::AutocastFp16,
        "bf16" => Precision::Bf16,
        "fp16" => Precision::Fp16,
        "bf16_autocast" => Precision::Bf16AutocastBf16,
        "fp32" => Precision::Fp32,
        other => panic!("{other}"),
    }
}

pub(crate) fn optimizer(name: &str) -> OptimizerSettings {
    let kind = match name {
        _ if name.contains("AdamW(") => OptimizerKind::AdamW,
        _ if name.contains("Adam(") => OptimizerKind::Adam,
        _ if name.contains("momentum=0.9") => OptimizerKind::Momentum,
        _ if name.contains("SGD") => OptimizerKind::Sgd,
        _ => panic!("{name}"),
    };
    let implementation = match name {
        _ if name.contains("fused=True") => Implementation::Fused,
        _ if name.contains("foreach=False") => Implementation::Loop,
        _ => Implementation::Foreach,
    };
    OptimizerSettings { implementation, ..OptimizerSettings::new(kind, 1e-4) }
}

/// The recorded number counts what is not trained, too.
fn check_parameters(count: u64, run: &Value) {
    if run["options"]["lora"].is_null() {
        assert_eq!(count, run["params"].as_u64().unwrap());
    }
}

/// The adapters of a recorded `LoraConfig`.
fn adapters(model: &Pretrained, config: &Value) -> Option<Lora> {
    let names = config["target_modules"].as_str().map(|names| names.parse().unwrap());
    Some(Lora {
        rank: config["r"].as_u64()? as usize,
        target: names.or_else(|| model.lora_target()).unwrap(),
        dropout: config["lora_dropout"].as_f64().unwrap_or(0.0),
        dora: config["use_dora"] == true,
        rslora: config["use_rslora"] == true,
        saved: config["modules_to_save"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(String::from))
            .collect(),
    })
}

/// The weights of a recorded `BitsAndBytesConfig`.
fn quantized(model: &Pretrained, config: &Value) -> Option<Quantized> {
    let bits = if config["load_in_4bit"] == true { 4 } else { 8 };
    let kept = model.not_quantized().unwrap_or_default();
    config.is_object().then(|| Quantized { bits, twice: config["bnb_4bit_use_double_quant"] == true, kept })
}

/// Our rows of a recorded run, of the network that `config` describes.
fn rows(run: &Value, config: &Value) -> Vec<Row> {
    let o = &run["options"];
    let options = Options {
        sequence: Some(run["seq"].as_u64().unwrap() as usize),
        attention: if o["attn_implementation"] == "eager" { Attention::Eager } else { Attention::Sdpa },
        checkpoint: recompute(o["gradient_checkpointing"] == true),
        attention_mask: match o["attention_mask"].as_str() {
            Some("padded") => AttentionMask::Padded,
            Some("full") => AttentionMask::Full,
            Some("none") => AttentionMask::None,
            _ if o["attention_mask"] == true => AttentionMask::Full,
            _ => AttentionMask::None,
        },
        built_on_device: o["init"] == "cuda",
        choices: o["choices"].as_u64().map(|choices| choices as usize),
        transformers: run["versions"]["transformers"].as_str().map(|release| release.parse().unwrap()),
        script: if o["loop"] == "trainer" { Script::Trainer } else { Script::Plain },
        ..Options::default()
    };
    let model = parse("config.json", &config.to_string(), &options).unwrap();
    assert_eq!(model.warnings, Vec::<String>::new());
    let count = |key: &Value| key.as_u64().unwrap() as usize;
    let settings = RunSettings {
        accumulate: count(&o["grad_accumulation"]),
        precision: match o["precision"].as_str().unwrap() {
            "as loaded" => Precision::throughout(model.loaded_type().unwrap()),
            other => precision(other),
        },
        lora: adapters(&model, &o["lora"]),
        quantized: quantized(&model, &o["quantization"]),
        clip_grad_norm: o["args"]["max_grad_norm"].as_f64().filter(|norm| *norm > 0.0),
        ..RunSettings::new(count(&run["batch"]), 3, optimizer(o["optimizer"].as_str().unwrap()))
    };
    let source = Source::Renewed { seed: settings.seed };
    if options.script == Script::Trainer {
        let mut trainer = library_trainer(&model, &device(o), &settings, source).unwrap();
        check_parameters(trainer.parameter_count(), run);
        for step in 0..3 {
            trainer.step(step).unwrap();
        }
        return trainer.rows().to_vec();
    }
    let keep = if o["keep"] == "loss" { Keep::Loss } else { Keep::Output };
    let mut trainer = trainer(&model, &device(o), &settings, source, keep).unwrap();
    check_parameters(trainer.parameter_count(), run);
    for step in 0..3 {
        trainer.step(step).unwrap();
    }
    trainer.row("end");
    trainer.rows().to_vec()
}

/// Returns every row that differs in any figure: allocated, reserved, their peaks, requested, inactive, segments, the number of events.
fn differences(run: &Value, config: &Value) -> Vec<String> {
    let ours = rows(run, config);
    let theirs = run["steps"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.len());
    let columns: Vec<&str> = run["step_columns"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    assert_eq!(columns, lab_training::record::COLUMNS);
    let mut found = Vec::new();
    for (row, recorded) in ours.iter().zip(theirs) {
        assert_eq!(row.label, recorded[0].as_str().unwrap());
        for (i, figure) in row.figures().iter().enumerate() {
            let recorded = recorded[i + 1].as_u64().unwrap();
            if *figure != recorded {
                found.push(format!("{} {}: {figure}, PyTorch {recorded}", row.label, columns[i + 1]));
            }
        }
    }
    found
}

/// Fails if any figure of any run of the family differs, and lists these figures.
fn family(name: &str, expected: usize) {
    let runs = recorded(name);
    assert_eq!(runs.len(), expected, "runs of {name}");
    let different: Vec<String> = runs
        .iter()
        .flat_map(|run| {
            differences(run, &run["config"]).into_iter().map(|d| format!("{}: {d}", run["name"].as_str().unwrap()))
        })
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn gpt2() {
    family("gpt2", 12);
}

#[test]
fn opt() {
    family("opt", 2);
}

#[test]
fn pythia() {
    family("pythia", 2);
}

/// Drawn networks of fourteen families in bfloat16 and under autocast, whose attention is cuDNN's.
#[test]
fn with_cudnn() {
    family("cudnn", 32);
}

/// Drawn networks on cards of six compute capabilities.
#[test]
fn on_other_cards() {
    family("cards", 16);
}

#[test]
fn t5() {
    family("t5", 29);
}

#[test]
fn wide_heads() {
    family("wide_heads", 12);
}

#[test]
fn bert() {
    family("bert", 3);
}

#[test]
fn llama() {
    family("llama", 5);
}

#[test]
fn qwen2() {
    family("qwen2", 2);
}

#[test]
fn vit() {
    family("vit", 1);
}

/// Loaded by `from_pretrained` from files whose configuration names a type, under either key, or none.
#[test]
fn in_the_type_that_the_configuration_names() {
    family("dtype", 13);
}

/// Weights in bfloat16 under autocast.
#[test]
fn autocast_over_weights_in_bfloat16() {
    family("bf16_autocast", 7);
}

/// `use_cache: false` in a plain loop.
#[test]
fn without_a_cache() {
    family("nocache", 7);
}

/// In the loop of the library's own `Trainer`.
#[test]
fn in_the_librarys_trainer() {
    family("trainer", 42);
}

/// Batches with an attention mask, with padding and without.
#[test]
fn with_an_attention_mask() {
    family("masks", 66);
}

/// The same in the loop of the library's own `Trainer`.
#[test]
fn in_the_librarys_trainer_with_padding() {
    family("trainer_padded", 3);
}

/// Other heads with a mask, with padding and without.
#[test]
fn heads_with_an_attention_mask() {
    family("heads_masks", 15);
}

/// Other heads in the loop of the library's own `Trainer`.
#[test]
fn heads_in_the_librarys_trainer() {
    family("heads_trainer", 17);
}

/// Created directly on the device.
#[test]
fn built_on_the_device() {
    family("built", 12);
}

#[test]
fn unusual() {
    family("unusual", 61);
}

/// Each head of `architectures`, on each family that has it.
#[test]
fn heads() {
    family("heads", 90);
}

/// Decoders of an earlier release of the library.
#[test]
fn transformers_4_51() {
    family("transformers_4_51", 51);
}

/// GPT-2 of an earlier release: both kinds of attention, checkpointing, a fused optimizer.
#[test]
fn gpt2_of_transformers_4_51() {
    family("transformers_4_51_gpt2", 5);
}

/// OPT of the releases that give attention the mask of ones made for its positions: masks, both kinds of attention, checkpointing, heads.
#[test]
fn opt_of_transformers_5_17() {
    family("transformers_5_17_opt", 24);
}

/// Networks of six families, and other names of one, in the newest release: masks, both kinds of attention, checkpointing, a fused optimizer.
#[test]
fn transformers_5_24() {
    family("transformers_5_24", 48);
}

/// Gemma, Phi-3, Qwen3 and others, and scaled frequencies.
#[test]
fn architectures_and_scaled_frequencies() {
    family("architectures", 36);
}

/// Adapters of PEFT with checkpointing, under autocast, in 16 bits, with dropout.
#[test]
fn adapters_of_peft() {
    family("adapters", 27);
}

/// Adapters in the library's own loop.
#[test]
fn adapters_in_the_librarys_trainer() {
    family("adapters_trainer", 8);
}

/// Adapters with magnitudes (DoRA).
#[test]
fn adapters_with_magnitudes() {
    family("dora", 10);
}

/// Weights of bitsandbytes in 4 and 8 bits, with adapters.
#[test]
fn weights_of_bitsandbytes() {
    family("quantized", 26);
}

/// Recordings that no test above names: one that is added is compared at once.
#[test]
fn recordings_without_a_test_of_their_own() {
    let folder = format!("{}/tests/golden/models", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = files.filter_map(|file| file.strip_suffix(".json.gz").map(String::from)).collect();
    assert!(names.len() > 30);
    let is_named = |name: &String| include_str!("golden_models.rs").contains(&format!("family(\"{name}\""));
    names.iter().filter(|name| !is_named(name)).for_each(|name| family(name, recorded(name).len()));
}

/// A configuration without the keys at their defaults gives the same network as the library's complete one.
#[test]
fn defaults_are_the_librarys() {
    let runs = [recorded("unusual"), recorded("architectures")].concat();
    let written: Vec<&Value> = runs.iter().filter(|run| run["given"].is_object()).collect();
    assert_eq!(written.len(), 94);
    for run in written {
        let mut config = run["given"].clone();
        if run["options"]["use_cache"] == false {
            config["use_cache"] = false.into();
        }
        assert_eq!(differences(run, &config), Vec::<String>::new(), "{}", run["name"]);
    }
}
