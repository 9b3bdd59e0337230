//! `--hf-args`: defaults, a model file of another release, combinations with other flags.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::NO_PACKAGES;

fn vramlab(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.env("VIRTUAL_ENV", NO_PACKAGES).env_remove("PYTHONPATH");
    command.current_dir(folder).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const NETWORK: &str = r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 512,
    "n_positions": 64, "transformers_version": "4.45.2"}"#;

#[test]
fn plain_arguments_go_with_a_usual_network() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("config.json", NETWORK);
    write("a.json", r#"{"output_dir": "out", "per_device_train_batch_size": 2, "learning_rate": 2e-5}"#);
    write("old.yaml", "output_dir: out\noverwrite_output_dir: true\nper_device_train_batch_size: 2\n");
    write("lora.json", r#"{"output_dir": "out", "use_peft": true}"#);
    write("torchao.json", r#"{"output_dir": "out", "optim": "adamw_torch_8bit"}"#);
    write("eight.json", r#"{"output_dir": "out", "optim": "galore_adamw"}"#);
    let predict = |words: &[&str]| {
        let all = [&["predict", "--model-file", "config.json", "--steps", "2"], words].concat();
        let output = vramlab(folder.path(), &all);
        (output.status.code(), said(&output))
    };
    for (words, code, expected) in [
        (&["--hf-args", "a.json"][..], 0, "none is installed"),
        (
            &["--hf-args", "old.yaml"],
            0,
            "vramlab does not support the Trainer of transformers 4.57, and assumes a plain loop",
        ),
        (
            &["--hf-args", "a.json", "--transformers", "4.51"],
            0,
            "vramlab does not support the Trainer of transformers 4.51",
        ),
        (&["--hf-args", "a.json", "--batch", "3"], 0, "batch 3 × 64"),
        (&["--hf-args", "torchao.json"], 2, "does not count optim=adamw_torch_8bit"),
        (&["--hf-args", "torchao.json", "--optimizer", "adamw8bit"], 0, "adamw8bit"),
        (&["--hf-args", "eight.json"], 2, "--optimizer says what to take instead"),
        (&["--hf-args", "eight.json", "--optimizer", "adamw"], 0, "adamw"),
        (&["--hf-args", "config.json"], 2, "vramlab predict takes it"),
        (&["--hf-args", "none.json"], 2, "none.json"),
    ] {
        let (found, text) = predict(words);
        assert!(found == Some(code) && text.contains(expected), "{words:?}: {found:?} {text}");
    }
    // Adapters of a file are those of flags.
    let peak = |words: &[&str]| predict(words).1.lines().find(|line| line.contains("at the peak")).map(String::from);
    let of_flags = peak(&["--hf-args", "a.json", "--lora", "16", "--lora-dropout", "0.05", "--batch", "1"]);
    assert!(of_flags.is_some() && of_flags != peak(&["--hf-args", "a.json", "--batch", "1"]));
    assert_eq!(peak(&["--hf-args", "lora.json"]), of_flags);
    let help = said(&vramlab(folder.path(), &["predict", "--help"]));
    assert!(help.contains("per_device_train_batch_size=4") && help.contains("--gpu 24GiB"), "{help}");
}
