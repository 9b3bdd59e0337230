//! What people type, and what comes: `typed/commands.tsv` has a command a line, its exit code, and the line that tells. The first commands are those that a
//! review tried as a newcomer; the others use spellings of PyTorch, transformers, Accelerate and Lightning, and the slips that people make.

use std::fs;
use std::path::Path;

use crate::common::{vramlab, words};

/// Makes a folder with what the commands name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let config = br#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 1000,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "transformers_version": "4.51.3"}"#;
    write("config.json", config);
    write("cut.json", &config[..100]);
    write("train.py", b"import torch\n");
    write("models.py", b"class Net: pass\n");
    write("notebook.ipynb", b"{\"cells\": []}");
    write("recipe.yaml", b"model_name_or_path: org/tiny\nper_device_train_batch_size: 2\n");
    write("run.toml", b"model = \"mlp\"\nbatch = 8\n");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    write("net.toml", &fs::read(root.join("examples/models/digits-mlp.toml")).unwrap());
    write("hub/hub/models--org--tiny/refs/main", b"abc");
    write("hub/hub/models--org--tiny/snapshots/abc/config.json", config);
    write("weights.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\":{}}");
    write("train.log", b"step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.53 GiB of which 1.28 GiB is free.\n");
    let snapshot = root.join("lab/traces/tests/golden/snapshots/cnn_b128_stacks.pickle");
    write("snapshot.pickle", &fs::read(snapshot).unwrap());
    let run = |words: &[&str]| {
        let done = vramlab().current_dir(folder.path()).args(words).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["predict", "mlp", "--steps", "2", "--json", "result.json"]);
    run(&["check", "memory.lock.json", "--update", "--model", "mlp", "--steps", "2"]);
    folder
}

/// Runs a command; returns the exit code, and all that it says on one line: the answer, or the error.
fn came(typed: &str, folder: &Path) -> (i32, String) {
    let mut command = vramlab();
    command.current_dir(folder).args(words(typed)).env("HF_HOME", folder.join("hub"));
    command
        .env_remove("HF_HUB_CACHE")
        .env_remove("HUGGINGFACE_HUB_CACHE")
        .env("VRAMLAB_RUNTIME_DIR", folder.join("runtime"));
    // No script is run here: what names one gets as far as the library that rehearses it.
    command.env("VRAMLAB_REHEARSAL_LIBRARY", "/nonexistent/library.so");
    command.env_remove("VRAMLAB_ONLY_BUILT_IN");
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(!err.contains("panicked"), "{typed}: {err}");
    let said = if err.contains("error:") { err } else { format!("{out} {err}") };
    (output.status.code().unwrap(), said.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn natural_commands_are_taken_or_told_what_is_right() {
    let folder = folder();
    let table = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/typed/commands.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    assert!(rows.len() >= 140, "{}", rows.len());
    let mut other = String::new();
    for row in &rows {
        let [typed, code, part] = row[..] else { panic!("{row:?}: three columns") };
        let (is, said) = came(typed, folder.path());
        if is.to_string() != code || part.is_empty() || !said.contains(part) {
            let said: String = said.chars().take(300).collect();
            other += &format!("{typed}\t{is}\t{said}\n");
        }
    }
    assert!(other.is_empty(), "other than in the table:\n{other}");
}

#[test]
fn no_error_shows_a_usage_that_nobody_asked_for() {
    let folder = folder();
    for typed in ["predict gpt2 --nosuch", "open", "info", "frobnicate", "train --model nosuch"] {
        let (code, said) = came(typed, folder.path());
        assert_eq!(code, 2, "{typed}: {said}");
        assert!(!said.contains("Usage:") && said.contains("For help: vramlab"), "{typed}: {said}");
    }
}
