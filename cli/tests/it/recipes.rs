//! Recipes of trainers: counted from their keys, or rehearsed with the trainer.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::NO_PACKAGES;

const NETWORK: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256, "torch_dtype": "bfloat16"}"#;

const AXOLOTL: &str = "base_model: ./tiny\nsequence_len: 64\nmicro_batch_size: 2\ngradient_accumulation_steps: 3\noptimizer: adamw_torch_fused\n\
    learning_rate: 1e-4\nbf16: auto\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\noutput_dir: out\ndatasets:\n  - path: org/texts\n";

/// Returns the exit code and what a command says.
fn said(folder: &Path, environment: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.current_dir(folder).args(words).env("VIRTUAL_ENV", environment).env("HF_HOME", folder.join("hub"));
    command.env_remove("PYTHONPATH").env_remove("HF_HUB_CACHE").env_remove("VRAMLAB_ONLY_BUILT_IN");
    let output = command.env("VRAMLAB_REHEARSAL_LIBRARY", "/nonexistent/library.so").output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code(), text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A recipe with adapters around a recorded graph.
const LLAMA_FACTORY: &str = "model_name_or_path: granite-3.3-2b\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_target: all\n\
    cutoff_len: 64\nbf16: true\nper_device_train_batch_size: 1\ndataset: texts\ntemplate: granite3\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("tiny/config.json", NETWORK);
    write("a.yml", AXOLOTL);
    write("eight.yml", &AXOLOTL.replace("adamw_torch_fused", "came_pytorch"));
    write("zero.yml", &format!("{AXOLOTL}deepspeed: z3.json\nfoo: 1\nsequence_lem: 9\n"));
    write("absent.yml", &AXOLOTL.replace("./tiny", "/nowhere/large"));
    write("bad.yml", &AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: two"));
    write("graph.yaml", LLAMA_FACTORY);
    write("bits.yaml", &format!("{LLAMA_FACTORY}quantization_bit: 4\n"));
    write("words.yaml", "a: 1\n");
    folder
}

#[test]
fn a_recipe_is_counted_and_its_keys_are_named() {
    let folder = folder();
    for (words, code, parts) in [
        (
            &["predict", "a.yml", "--gpu", "rtx4090"][..],
            0,
            &[
                "batch 2 × 64 tokens, 3 micro-batches, bfloat16, autocast to bfloat16, adamw",
                "is a recipe of axolotl (base_model, micro_batch_size",
                "warning: not exact, a.yml: flash_attention_2 (counted as sdpa",
                "no effect on memory: datasets, output_dir",
            ][..],
        ),
        (
            &["predict", "a.yml", "--batch", "1", "--optimizer", "sgd"],
            0,
            &["batch 1 × 64 tokens, 3 micro-batches", "sgd"],
        ),
        (&["predict", "eight.yml"], 2, &["vramlab does not count optimizer=came_pytorch", "--optimizer"]),
        (&["predict", "eight.yml", "--optimizer", "adamw"], 0, &["adamw"]),
        (&["predict", "zero.yml"], 2, &["says not how many; of 8: vramlab predict zero.yml --data-parallel 8"]),
        (
            &["predict", "zero.yml", "--data-parallel", "2"],
            0,
            &[
                "2 ranks train with 2 examples each, under ZeRO-3",
                "not known, and ignored: foo, sequence_lem (did you mean sequence_len?)",
                "counted as a plain loop",
            ],
        ),
        (&["predict", "graph.yaml"], 0, &["granite-3.3-2b, LoRA rank 8", "adapters on all linear layers"]),
        (
            &["predict", "bits.yaml"],
            2,
            &[
                "granite-3.3-2b is a recorded graph, in which weights stay as they are: --load-in-4bit",
                "granite-3.3-2b is built by",
            ],
        ),
        (&["predict", "absent.yml"], 2, &["/nowhere/large", "vramlab predict absent.yml --model-file config.json"]),
        (&["predict", "absent.yml", "--model-file", "tiny/config.json"], 0, &["batch 2 × 64 tokens"]),
        (&["predict", "bad.yml"], 2, &["bad.yml", "micro_batch_size=two: expected a whole number"]),
        (&["predict", "--recipe", "words.yaml"], 2, &["of no trainer that vramlab knows"]),
        (&["fit", "a.yml", "--gpu", "rtx4090", "--maximum", "2"], 0, &["2 examples fit"]),
    ] {
        let (found, text) = said(folder.path(), Path::new(NO_PACKAGES), words);
        assert_eq!(found, Some(code), "{words:?}: {text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{words:?}: {part}: {text}"));
    }
}

/// With the trainer in the user's Python its own command is rehearsed, unless a flag describes a network.
#[cfg(target_os = "linux")]
#[test]
fn a_recipe_is_rehearsed_with_the_trainer() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    let environment = folder.path().join("env");
    for name in ["bin/python", "bin/axolotl"] {
        let path = environment.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir_all(environment.join("lib/python3.11/site-packages/axolotl-0.19.0.dist-info")).unwrap();
    let (code, text) = said(folder.path(), &environment, &["predict", "a.yml", "--gpu", "rtx4090"]);
    assert!(text.contains("/nonexistent/library.so") && code != Some(0), "{code:?}: {text}");
    assert!(text.contains("recipe of axolotl") && text.contains("rehearsed as axolotl train a.yml"), "{text}");
    let (code, text) = said(folder.path(), &environment, &["predict", "a.yml", "--batch", "4"]);
    assert!(
        code == Some(0) && text.contains("without axolotl: --batch is for networks that vramlab counts"),
        "{code:?}: {text}"
    );
    let (code, text) =
        said(folder.path(), &environment, &["predict", "--recipe", "a.yml", "--model-file", "tiny/config.json"]);
    assert!(code == Some(0) && text.contains("batch 2 × 64 tokens"), "{code:?}: {text}");
}
