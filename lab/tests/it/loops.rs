//! Loops that are not one batch after another of one size, of networks from files, beside recorded runs of the real PyTorch (`golden/k_*` and `golden/freeze_*`, made by
//! `scripts/loop`): every row in every column. Those of built-in networks are in `golden_scripts`, with every event.

use crate::archives;
use std::ops::ControlFlow;
use std::sync::Arc;

use backend_cpu::Cpu;
use lab::exported;
use lab::huggingface::{self, Keep, Options};
use lab::models::{Lora, ModelOptions, architecture};
use lab::record::COLUMNS;
use lab::run::{DryRunner, RunSpec, resolve};
use lab::training::{
    Continuation, Ema, Evaluation, Hold, OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer, Turns,
};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};
use serde_json::{Value, json};

use crate::archives::compared::golden;
use crate::loop_recordings::{compare, compare_columns, recording};

fn device() -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    Device::builder(Arc::new(Meta::new(card))).profile(Profile::torch_2_11(90)).build()
}

fn sizes(list: &Value) -> Vec<usize> {
    list.as_array().into_iter().flatten().map(|size| size.as_u64().unwrap() as usize).collect()
}

/// Settings of a recorded program, with the sizes of its batches.
fn settings(program: &Value) -> RunSettings {
    let turns = Turns { batches: sizes(&program["batches"]), lengths: sizes(&program["lengths"]) };
    let evaluation = match &sizes(&program["evaluation"])[..] {
        &[every, batch, batches] if every > 0 => Some(Evaluation { every, batch, batches, keeps_results: false }),
        _ => None,
    };
    let steps = program["steps"].as_u64().unwrap() as usize;
    let hold = program["hold"].as_str().map_or_else(Hold::default, |names| names.parse().unwrap());
    let ema = (program["average"] == true).then_some(Ema::Parameters);
    RunSettings {
        freeze: program["freeze"].as_str().map(|names| names.parse().unwrap()),
        turns,
        evaluation,
        ema,
        hold,
        ..RunSettings::new(12, steps, OptimizerSettings::new(OptimizerKind::AdamW, 1e-4))
    }
}

fn of_transformers(name: &str) {
    let recording = recording(name);
    let program = &recording["program"];
    let options = Options { sequence: Some(64), ..Options::default() };
    let model = huggingface::parse("config.json", &program["config"].to_string(), &options).unwrap();
    let settings = settings(program);
    let mut trainer =
        huggingface::trainer(&model, &device(), &settings, Source::Renewed { seed: 0 }, Keep::Output).unwrap();
    for step in 0..settings.steps {
        trainer.step(step).unwrap();
    }
    compare(name, trainer.rows(), &recording);
}

/// A network of transformers with PEFT's adapters.
fn adapted(name: &str) {
    adapted_in(name, &COLUMNS[1..]);
}

/// In bfloat16 the bytes are equal; 4 of some 400 events of a forward pass are not.
#[test]
fn adapters_on_all_layers_of_a_llama_in_bfloat16() {
    adapted_in(
        "lora_llama_all_bf16",
        &["allocated", "max_allocated", "reserved", "max_reserved", "phase_peak_allocated"],
    );
}

fn adapted_in(name: &str, columns: &[&str]) {
    let recording = recording(name);
    let program = &recording["program"];
    let options = Options { sequence: Some(64), ..Options::default() };
    let model = huggingface::parse("config.json", &program["config"].to_string(), &options).unwrap();
    let of_lora = &program["lora"];
    let named = of_lora["lora-target"].as_str().map(|names| names.parse().unwrap());
    let lora = Lora {
        rank: of_lora["lora"].as_u64().unwrap() as usize,
        target: named.or_else(|| model.lora_target()).unwrap(),
        dropout: of_lora["lora-dropout"].as_f64().unwrap(),
        dora: false,
        rslora: false,
        saved: Vec::new(),
    };
    let adamw = OptimizerSettings::new(OptimizerKind::AdamW, 1e-4);
    let settings = RunSettings {
        lora: Some(lora),
        accumulate: program["accumulate"].as_u64().unwrap() as usize,
        precision: program["precision"].as_str().unwrap().parse().unwrap(),
        turns: Turns { batches: Vec::new(), lengths: vec![48] },
        ..RunSettings::new(2, program["steps"].as_u64().unwrap() as usize, adamw)
    };
    let mut trainer =
        huggingface::trainer(&model, &device(), &settings, Source::Renewed { seed: 0 }, Keep::Output).unwrap();
    for step in 0..settings.steps {
        trainer.step(step).unwrap();
    }
    compare_columns(name, trainer.rows(), &recording, columns);
}

fn of_an_export(name: &str, network: &str) {
    let recording = recording(name);
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden(&format!("{network}.pt2.gz")), folder.path(), network);
    let model = exported::load(&path, Some("cross-entropy".parse().unwrap())).unwrap();
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let settings = settings(&recording["program"]);
    let result = exported::train_from(&model, &device(), &settings, source, &mut Continuation::default(), progress);
    let mut rows = result.unwrap().rows;
    rows.pop();
    compare(name, &rows, &recording);
}

macro_rules! equal {
    ($($test:ident: $check:expr;)*) => {
        $(#[test]
        fn $test() {
            $check;
        })*
    };
}

equal! {
    batches_and_lengths_of_gpt2: of_transformers("k_hf_gpt2");
    batches_and_lengths_of_llama: of_transformers("k_hf_llama");
    batches_and_lengths_of_bert: of_transformers("k_hf_bert");
    batches_and_lengths_of_t5: of_transformers("k_hf_t5");
    evaluations_of_gpt2: of_transformers("k_eval_hf_gpt2");
    evaluations_of_llama: of_transformers("k_eval_hf_llama");
    what_gpt2_holds: of_transformers("k_hold_hf_gpt2");
    an_average_and_evaluations_of_gpt2: of_transformers("k_ema_hf_gpt2");
    evaluations_of_t5: of_transformers("k_eval_hf_t5");
    evaluations_of_opt: of_transformers("k_eval_hf_opt");
    evaluations_of_gpt_neox: of_transformers("k_eval_hf_gpt_neox");
    evaluations_of_bert: of_transformers("k_eval_hf_bert");
    evaluations_of_an_exported_network: of_an_export("k_eval_export_swiglu", "swiglu");
    batches_of_an_exported_resnet: of_an_export("k_export_resnet20", "resnet20");
    a_generator_against_its_discriminator: of_adversaries("k_gan_b4");
    a_generator_against_its_discriminator_at_another_batch: of_adversaries("k_gan_b32");
    batches_of_an_exported_mlp: of_an_export("k_export_mlp", "mlp");
    adapters_on_a_llama: adapted("lora_llama");
    adapters_on_all_layers_of_a_llama: adapted("lora_llama_all");
    adapters_with_dropout_on_a_qwen3: adapted("lora_qwen3_dropout");
    adapters_on_a_gpt2: adapted("lora_gpt2");
    adapters_on_all_layers_of_a_gpt2: adapted("lora_gpt2_all");
    adapters_on_a_bert: adapted("lora_bert");
    adapters_on_all_layers_of_a_bert: adapted("lora_bert_all");
    a_llama_whose_head_and_norms_are_trained: of_transformers("freeze_hf_llama_head");
    a_llama_without_its_table_and_mlps: of_transformers("freeze_hf_llama_mlp");
    a_gpt2_without_its_attention: of_transformers("freeze_hf_gpt2_attention");
    a_bert_whose_first_block_is_frozen: of_transformers("freeze_hf_bert_encoder");
    an_export_without_its_first_layer: of_an_export("freeze_export_swiglu", "swiglu");
    an_export_whose_biases_are_trained: of_an_export("freeze_export_mlp", "mlp");
}

/// A generator against its discriminator.
fn of_adversaries(name: &str) {
    let recording = recording(name);
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str| {
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
        exported::load(&path, None).unwrap()
    };
    let model = load("generator").against(load("discriminator")).unwrap();
    let batch = recording["program"]["batch"].as_u64().unwrap() as usize;
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 2e-4);
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let settings = RunSettings::new(batch, 3, adam);
    let result = exported::train_from(&model, &device(), &settings, source, &mut Continuation::default(), progress);
    let mut rows = result.unwrap().rows;
    rows.pop();
    compare(name, &rows, &recording);
}

#[test]
fn two_networks_that_do_not_fit_are_not_trained_against_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let export = |name: &str| archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
    let (generator, discriminator) = (export("generator"), export("discriminator"));
    for (fields, message) in [
        (json!({"adversary": generator}), "adversary: the generator gives [2, 3, 32, 32], and the discriminator takes"),
        (json!({"adversary": export("nanogpt")}), "adversary: both networks take one input of floats each"),
        (json!({"adversary": discriminator, "loss": "mse"}), "loss: --adversary has its own"),
        (
            json!({"adversary": discriminator, "checkpoint": "main"}),
            "checkpoint: vramlab does not support it with --adversary",
        ),
    ] {
        let mut fields = fields;
        fields["model-file"] = json!(generator);
        let error = refused(fields.clone());
        assert!(error.starts_with(message), "{fields}: {error}");
    }
    let error = refused(json!({"adversary": generator}));
    assert!(error.starts_with("adversary: only a model.pt2 of torch.export has it"), "{error}");
}

/// Why a run of these fields is refused.
fn refused(fields: Value) -> String {
    let spec = RunSpec::of_fields(fields.as_object().unwrap());
    spec.and_then(|spec| resolve(&spec, &[]).map(|_| ())).unwrap_err().to_string()
}

#[test]
fn sizes_that_a_run_cannot_have_are_refused_by_name() {
    for (fields, message) in [
        (json!({"batch": 4, "batches": "4,2"}), "batches: it does not go with batch"),
        (json!({"batches": "4,0"}), "batches: each must be at least 1"),
        (json!({"batches": "4,2", "data": "digits", "model": "mlp"}), "batches: batches of a data set have one size"),
        (json!({"model": "mlp", "lengths": "8"}), "lengths: this network takes no tokens"),
        (
            json!({"model": "gpt", "lengths": "64,65"}),
            "lengths: 65 tokens, and the network takes 64; --sequence sets that",
        ),
        (json!({"model": "seq2seq-attention", "lengths": "8"}), "lengths: vramlab supports it for gpt, gpt2"),
        (json!({"eval-batch": 8}), "eval-batch: it goes only with eval-every"),
        (json!({"model": "seq2seq-attention", "eval-every": 1}), "eval-every: what this network takes without a graph"),
        (json!({"hold": "logits"}), "hold: \"logits\": expected none, or some of inputs, outputs, loss"),
        (json!({"eval-every": 0}), "eval-every: must be at least 1"),
        (json!({"model": "mlp", "data": "digits", "eval-every": 2}), "eval-every: with a data set, its test examples"),
    ] {
        let error = refused(fields.clone());
        assert!(error.starts_with(message), "{fields}: {error}");
    }
}

#[test]
fn a_run_goes_through_its_sizes_twice_unless_said() {
    let steps = |fields: Value| {
        let session = resolve(&RunSpec::of_fields(fields.as_object().unwrap()).unwrap(), &[]).unwrap();
        (session.run.steps, session.steps_said, session.notes.len())
    };
    assert_eq!(steps(json!({"batches": "4,2"})), (10, None, 0));
    assert_eq!(steps(json!({"batches": "4,2,4,4,4,4,4"})), (14, None, 0));
    assert_eq!(
        steps(json!({"batches": "4,2,3", "steps": 2})),
        (2, Some(2), 1),
        "the note says that a size is not reached"
    );
}

/// A graph of training does not say what these are in an evaluation.
#[test]
fn an_export_whose_evaluation_is_not_known_is_not_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    for (name, part) in [
        ("lstm", "computes lstm.input in "),
        ("convnext", "computes bernoulli_.float in "),
        ("encoder", "is of a module of PyTorch that takes another path under model.eval()"),
    ] {
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
        let error = refused(json!({"model-file": path, "eval-every": 2}));
        assert!(error.starts_with("eval-every: the export ") && error.contains(part), "{name}: {error}");
    }
}

/// Evaluations and averages that a loop or a network does not have.
#[test]
fn what_a_network_of_transformers_does_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, recording("k_hf_gpt2")["program"]["config"].to_string()).unwrap();
    for (fields, message) in [
        (json!({"loop": "trainer", "batches": "2,1"}), "batches: vramlab does not support it with --loop trainer"),
        (json!({"loop": "trainer", "eval-every": 2}), "eval-every: vramlab does not support it with --loop trainer"),
        (json!({"lengths": "8,65"}), "lengths: 65, but "),
    ] {
        let mut fields = fields;
        fields["model-file"] = json!(path);
        let error = refused(fields.clone());
        assert!(error.contains(message), "{fields}: {error}");
    }
    let run = |fields: Value| {
        let spec = RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
        let session = resolve(&spec, &[]).unwrap();
        let device = session.target.open().unwrap();
        session.train(&device, &mut |_| ControlFlow::Continue(())).map(|result| result.rows.len())
    };
    let error = run(json!({"model-file": path, "ema": "model"})).unwrap_err().to_string();
    assert!(error.starts_with("ema: model: the buffers of a network of transformers"), "{error}");
    let kept = json!({"model-file": path, "keep": "loss", "eval-every": 1, "eval-keep": "logits"});
    assert!(run(kept).unwrap_err().to_string().starts_with("eval-keep: logits: with --keep loss"));
    assert!(run(json!({"model-file": path, "ema": "parameters", "lengths": "64,8", "steps": 2})).unwrap() > 10);
}

/// The copies of a device that computes take the kernels that it has.
#[test]
fn an_average_is_kept_on_a_device_that_computes() {
    let options = ModelOptions { image: Some(32), width: Some(8), classes: Some(4), ..ModelOptions::default() };
    let network = architecture("resnet18", &options).unwrap();
    let adamw = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
    let settings = RunSettings { ema: Some(Ema::Model), ..RunSettings::new(2, 3, adamw) };
    let device = Device::builder(Arc::new(Cpu::new().unwrap())).build();
    let mut trainer = Trainer::build(&*network, &device, &settings, Source::Synthetic { seed: 0 }, "").unwrap();
    for step in 0..3 {
        assert!(trainer.step(step).unwrap().unwrap().is_finite());
    }
    assert!(trainer.rows().iter().any(|row| row.label == "s2.ema"));
}

/// Everything that is asked of a run is asked of as many steps as show every size.
#[test]
fn what_a_run_needs_is_that_of_its_largest_batch_wherever_it_stands() {
    let figures = |batches: &str| {
        let spec = RunSpec::of_fields(json!({"batches": batches}).as_object().unwrap()).unwrap();
        DryRunner::new(&[], &|| false).figures(&spec).unwrap()
    };
    let last = figures("4,4,4,4,4,4,128");
    assert_eq!(last.allocated_bytes, figures("128,4,4,4,4,4,4").allocated_bytes);
    assert!(last.allocated_bytes > figures("4,4").allocated_bytes);
}
