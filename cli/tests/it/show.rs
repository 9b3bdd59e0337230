//! `vramlab show`: a network from the inside, whatever it is read from.

use crate::common::{done, json, refused, unpacked_export};

use std::path::{Path, PathBuf};

use serde_json::Value;

fn config(folder: &Path) -> PathBuf {
    let path = folder.join("config.json");
    let text = r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 3, "n_embd": 64, "n_head": 4,
        "vocab_size": 500, "n_positions": 128}"#;
    std::fs::write(&path, text).unwrap();
    path
}

fn bytes(module: &Value, figure: &str) -> u64 {
    module[figure].as_u64().unwrap_or_else(|| panic!("{figure}: {module}"))
}

fn module<'a>(found: &'a Value, path: &str) -> &'a Value {
    let modules = found["modules"].as_array().unwrap();
    modules.iter().find(|module| module["path"] == path).unwrap_or_else(|| panic!("{path}: {found}"))
}

/// What the layers of a network keep, by hand: the result of each ReLU, which the next layer saves too, and what the cross entropy keeps.
#[test]
fn every_saved_tensor_counts_once_where_it_is_saved_first() {
    let (batch, width, classes) = (32, 256, 10);
    let words =
        ["show", "mlp", "--layers", "2", "--width", "256", "--features", "64", "--classes", "10", "--batch", "32"];
    let found = json(&words);
    let block = |bytes: u64| bytes.next_multiple_of(512);
    let relu = block(batch * width * 4);
    let loss = block(batch * classes * 4) + block(4);
    assert_eq!(bytes(&found, "saved_bytes"), 2 * relu + loss, "{found}");
    let values = 64 * width + width + width * width + width + width * classes + classes;
    assert_eq!(bytes(&found, "parameters"), values);
    let own = |name: &str| -> u64 {
        let operators =
            found["modules"].as_array().unwrap().iter().flat_map(|one| one["operators"].as_array().unwrap());
        operators.filter(|one| one["name"] == name).map(|one| bytes(one, "saved_bytes")).sum()
    };
    assert_eq!((own("ReluBackward0"), own("AddmmBackward0")), (2 * relu, 0));
    assert_eq!(own("LogSoftmaxBackward0") + own("NllLossBackward0"), loss);
}

/// Of every kind of network: what modules have and save is what is inside of them and what their own operators save.
#[test]
fn the_figures_of_a_tree_add_up_for_every_kind_of_network() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (config(folder.path()).display().to_string(), env!("CARGO_MANIFEST_DIR"));
    let toml = format!("{root}/../examples/models/tiny-transformer.toml");
    let (gpt2, unet) = (unpacked_export("gpt2", folder.path()), unpacked_export("unet", folder.path()));
    for words in [
        &["gpt2", "--layers", "2"][..],
        &["gpt2", "--layers", "3", "--checkpoint", "blocks"],
        &["resnet18", "--precision", "autocast-bf16"],
        &["seq2seq-attention"],
        &[&config],
        &[&toml],
        &[&gpt2, "--batch", "3"],
        &[&unet, "--batch", "3", "--loss", "mse"],
    ] {
        let found = json(&[&["show"][..], words].concat());
        let modules = found["modules"].as_array().unwrap();
        assert_eq!((&modules[0]["path"], found["schema"].as_str()), (&Value::from(""), Some("vramlab-network-1")));
        assert!(bytes(&found, "saved_bytes") > 0 && bytes(&found, "parameters") > 0, "{words:?}");
        assert_eq!(modules[0]["saved_bytes"], found["saved_bytes"], "{words:?}");
        assert_eq!(modules[0]["parameter_bytes"], found["parameter_bytes"], "{words:?}");
        for (i, one) in modules.iter().enumerate() {
            let path = one["path"].as_str().unwrap();
            let outer = |path: &str| path.rsplit_once('.').map_or("", |(outer, _)| outer).to_string();
            let inside = || modules[i + 1..].iter().filter(|two| outer(two["path"].as_str().unwrap()) == path);
            let own: u64 = one["operators"].as_array().unwrap().iter().map(|one| bytes(one, "saved_bytes")).sum();
            let of_inside: u64 = inside().map(|two| bytes(two, "saved_bytes")).sum();
            assert_eq!(bytes(one, "saved_bytes"), own + of_inside, "{words:?}: {path}");
            assert!(inside().map(|two| bytes(two, "parameter_bytes")).sum::<u64>() <= bytes(one, "parameter_bytes"));
        }
        // What it says on a terminal is repeated by the command at its end.
        let full = done(&[&["show"][..], words, &["--full"]].concat());
        assert!(full.contains("vramlab show"), "{full}");
    }
}

#[test]
fn shapes_are_those_of_the_batch_and_lines_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("nanogpt", folder.path());
    for batch in [3, 5] {
        let found = json(&["show", &path, "--batch", &batch.to_string()]);
        let output = module(&found, "h.1")["output"].as_array().unwrap();
        assert_eq!(output[0], batch, "{output:?}");
        let lines = found["modules"].as_array().unwrap().iter().flat_map(|one| one["operators"].as_array().unwrap());
        assert!(lines.filter_map(|one| one["line"].as_str()).all(|line| line.starts_with("networks.py:")));
    }
    let found = json(&["show", "resnet18", "--batch", "2", "--image", "64"]);
    assert_eq!(module(&found, "layer4")["output"], serde_json::json!([2, 512, 2, 2]));
}

/// What a checkpointed block keeps is its input, and nothing inside of it.
#[test]
fn checkpointing_leaves_the_inputs_of_blocks() {
    let words = ["show", "gpt", "--layers", "4", "--width", "64", "--heads", "4", "--sequence", "64", "--batch", "2"];
    let found = json(&[&words[..], &["--checkpoint", "blocks"]].concat());
    let kept = |one: &Value| {
        let operators = one["operators"].as_array().unwrap().iter();
        operators.filter(|one| one["name"] == "checkpoint").map(|one| bytes(one, "saved_bytes")).sum::<u64>()
    };
    let all: u64 = found["modules"].as_array().unwrap().iter().map(kept).sum();
    assert_eq!(all, 4 * 2 * 64 * 64 * 4);
    assert!(bytes(&found, "saved_bytes") < bytes(&json(&words), "saved_bytes"));
}

#[test]
fn what_cannot_be_shown_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path()).display().to_string();
    for (words, problem) in [
        (&["show", "gpt9"][..], "neither a file nor one of the networks"),
        (&["show", "resnet5"], "; did you mean \"resnet50\"?"),
        (&["show", "absent.pt2"], "absent.pt2"),
        (&["show", "gpt2", "--model", "mlp"], "cannot be used with"),
        (&["show", "gpt2", "--batch", "0"], "--batch: must be at least 1"),
        (&["show", "gpt2", "--head", "causal-lm"], "--head"),
        (&["show", &path, "--loop", "trainer"], "forward pass alone"),
    ] {
        let said = refused(2, words).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(problem), "{words:?}: {said}");
    }
}
