//! Exports with `--checkpoint` beside the eager programs that have `torch.utils.checkpoint` around the same modules
//! (`golden/exported/checkpointed`, made by `scripts/export/checkpointed.py`).

use crate::archives;
use std::ops::ControlFlow;

use lab_imports::exported::{self, Exported};
use lab_models::Recompute;
use lab_training::{Continuation, Failed, OptimizerKind, OptimizerSettings, RunResult, RunSettings, Source};
use memcore::Device;
use memcore::backend::Meta;

use crate::archives::compared::{Difference, Recording, as_the_package_writes, differences, golden};

/// Every row and column that differs. `NAME-sqrt` is the recording of a network in segments.
fn different(recorded: &str) -> Vec<Difference> {
    let name = recorded.trim_end_matches("-sqrt");
    let recording = Recording::read(&format!("checkpointed/{recorded}"));
    let eager = Recording::read(&format!("eager/{name}"));
    let folder = tempfile::tempdir().unwrap();
    let path = as_the_package_writes(name, folder.path(), Some(&eager.entry));
    differences(&path, &recording)
}

macro_rules! equal {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            let differences: Vec<String> = different($name).iter().map(ToString::to_string).collect();
            assert!(differences.is_empty(), "{}:\n{}", $name, differences.join("\n"));
        }
    )*};
}

equal! {
    nanogpt_with_dropout: "nanogpt";
    gpt2_of_transformers: "gpt2";
    resnet50_with_a_stage_and_blocks: "resnet50";
    a_vision_transformer: "vit";
    nine_blocks_in_three_segments: "resnet20-sqrt";
    three_blocks_in_two_segments: "timm-vit-sqrt";
    a_transformer_with_two_heads_in_two_segments: "timm-deit-sqrt";
}

/// Each layer is called with `position_ids`, which its operators do not use, so that they are not in the graph beside it. PyTorch keeps what a
/// module is called with until its backward pass: one block of 512 bytes.
#[test]
fn llama_of_transformers_but_for_the_positions() {
    let found = different("llama");
    let of_values = found.iter().filter(|found| ["allocated", "max_allocated", "active"].contains(&found.column));
    assert!(of_values.clone().count() > 0 && of_values.clone().all(|found| found.theirs - found.ours == 512));
    let held = found.iter().find(|found| found.row == "s0.forward" && found.column == "requested").unwrap();
    assert_eq!(held.theirs - held.ours, 32 * 8, "32 positions");
    assert!(found.iter().all(|found| !["reserved", "max_reserved", "segments"].contains(&found.column)));
}

fn refused(name: &str, checkpoint: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = as_the_package_writes(name, folder.path(), None);
    let recompute: Recompute = checkpoint.parse().unwrap();
    exported::load(&path, None).unwrap().recomputing(&recompute).err().unwrap().to_string()
}

#[test]
fn what_is_no_module_is_refused_by_name() {
    assert_eq!(
        refused("nanogpt", "wte,g.*"),
        "checkpoint: g.* names no module of the network: it has wte, wpe, drop, ln_f, lm_head"
    );
    assert_eq!(refused("nanogpt", "2"), "checkpoint: there is no block 2; the blocks are 0 to 1: h.0–1");
    assert_eq!(refused("nanogpt", "blocks:3"), "checkpoint: blocks:3: the network has 2 blocks");
    let error = refused("mlp", "blocks");
    assert!(error.starts_with("checkpoint: the network has no numbered blocks of one class"), "{error}");
}

#[test]
fn blocks_are_the_numbered_modules_and_the_answer_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = as_the_package_writes("resnet50", folder.path(), None);
    let model = |text: &str| exported::load(&path, None).unwrap().recomputing(&text.parse().unwrap()).unwrap();
    assert_eq!(model("none").blocks().unwrap(), "layer1.0–2, layer2.0–3, layer3.0–5, layer4.0–2");
    let said = |text: &str| model(text).notes()[1].clone();
    let all = "layer1.0–2, layer2.0–3, layer3.0–5, layer4.0–2";
    assert_eq!(said("blocks"), format!("Computed again in the backward pass (--checkpoint): {all}."));
    assert_eq!(said("0,15"), "Computed again in the backward pass (--checkpoint): layer1.0, layer4.2.");
    let segments = "layer1.0–2, layer2.0, layer2.1–3, layer3.0, layer3.1–4, layer3.5, layer4.0–2";
    assert_eq!(said("sqrt"), format!("Computed again in the backward pass (--checkpoint): {segments}."));
}

fn trained(model: &Exported, device: &Device) -> Result<RunResult, Failed> {
    let settings = RunSettings::new(4, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    let go_on = &mut |_| ControlFlow::Continue(());
    exported::train_from(model, device, &settings, Source::Synthetic { seed: 0 }, &mut Continuation::default(), go_on)
}

#[test]
fn losses_are_the_same_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    for (name, pattern) in [("gpt", "h.*"), ("gpt", "h.0.ln_1,h.*.fc,ln_f"), ("cnn", "conv1,norm,fc")] {
        let path = archives::unpacked(&golden(&format!("{name}-weights.pt2.gz")), folder.path(), name);
        let losses = |checkpoint: &str| {
            let model = exported::load(&path, None).unwrap().recomputing(&checkpoint.parse().unwrap()).unwrap();
            trained(&model, &Device::new(backend_cpu::Cpu::with_threads(1).unwrap())).unwrap().losses
        };
        let kept = losses("none");
        assert!(kept.len() == 3 && kept[2] < kept[0], "{kept:?}");
        assert_eq!(losses(pattern), kept, "{name} {pattern}");
    }
}

/// The first ReLU writes into what enters it.
#[test]
fn what_enters_and_is_written_in_place_is_not_computed_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = as_the_package_writes("resnet50", folder.path(), None);
    let model = exported::load(&path, Some("mean".parse().unwrap())).unwrap();
    let model = model.recomputing(&"relu".parse().unwrap()).unwrap();
    let error = trained(&model, &Device::new(Meta::default())).err().unwrap().error.to_string();
    assert!(error.contains("checkpoint of relu: batch_norm enters it and is written in place afterwards"), "{error}");
}
