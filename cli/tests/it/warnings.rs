//! Where figures are not PyTorch's, or results not what was asked for, the commands say so: on the terminal and in their JSON.

use crate::common::{json, run};

use serde_json::Value;

/// The warnings of a command, which are the same in both places.
fn warnings(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let found = json(&words)["warnings"].as_array().unwrap().clone();
    let found: Vec<String> = found.iter().map(|text| text.as_str().unwrap().to_string()).collect();
    let said = run(&words).stderr;
    for text in &found {
        assert!(text.starts_with("warning: ") && said.contains(text.as_str()), "{text} is not in {said}");
    }
    assert_eq!(said.matches("warning: ").count(), found.len(), "{said}");
    found
}

/// Fails unless there is exactly one warning, with these words.
fn warns(line: &str, of: &str) {
    let found = warnings(line);
    assert!(found.len() == 1 && found[0].contains(of), "{line}: {found:?}");
}

#[test]
fn convolutions_without_cudnn() {
    warns("predict --model simple-cnn --steps 1 --batch 11", "without cuDNN");
    warns("predict --model simple-cnn --steps 1 --batch 11", "does not count cuDNN's workspaces");
    // A table has the workspaces of the usual batch.
    assert!(warnings("predict --model simple-cnn --steps 1").is_empty());
    warns("predict --model simple-cnn --steps 1 --cudnn none", "without cuDNN");
    warns("fit --model simple-cnn --gpu t4 --steps 1 --maximum 4", "without cuDNN");
    warns("train --backend meta --model simple-cnn --steps 1", "without cuDNN");
    warns("train --backend meta --like torch-2.15-sm80 --model simple-cnn --steps 1", "without cuDNN");
    warns("predict --model simple-cnn --steps 1 --devices meta:0,meta:1", "without cuDNN");
    warns("predict --model simple-cnn --batch 8 --steps 1 --data-parallel 2", "without cuDNN");
}

#[test]
fn runs_of_scans_and_locks() {
    let scan = ["predict", "--model", "simple-cnn", "--steps", "1", "-L", "batch", "1,2"];
    let results = json(&scan)["results"].as_array().unwrap().clone();
    assert_eq!(results.len(), 2);
    for result in results {
        assert!(result["run"]["warnings"][0].as_str().unwrap().contains("without cuDNN"), "{result}");
    }
    let said = run(&scan).stderr;
    assert_eq!(said.matches("without cuDNN").count(), 1, "{said}");
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("memory.lock.json").display().to_string();
    let check = ["check", "--baseline", &lock, "--update", "--model", "simple-cnn", "--steps", "1"];
    assert!(json(&check)["runs"][0]["warnings"][0].as_str().unwrap().contains("without cuDNN"));
}

#[test]
fn attention_that_cudnn_would_do() {
    let gpt = "--model gpt --steps 1 --attention sdpa --precision bf16";
    warns(&format!("predict {gpt}"), "PyTorch takes cuDNN's");
    // In 32 bits cuDNN does no attention; what a technique of the table would do stands beside the table.
    assert_eq!(warnings("predict --model gpt --steps 1 --attention sdpa"), Vec::<String>::new());
    assert_eq!(warnings(&format!("predict {gpt} --like torch-2.11-sm80")), Vec::<String>::new());
}

#[test]
fn convolutions_of_channels_last() {
    let convnext = "predict --model convnext-tiny --image 64 --batch 2 --steps 1";
    // With cuDNN they are read as they lie.
    assert_eq!(warnings(&format!("{convnext} --cudnn-workspace 0")), Vec::<String>::new());
    warns(convnext, "without cuDNN");
}

#[test]
fn an_operand_of_another_type() {
    let run = "--model convnext-tiny --image 64 --batch 2 --steps 1 --precision autocast-bf16 --dropout 0";
    let found = warnings(&format!("train --backend cpu {run}"));
    assert!(found.iter().any(|text| text.contains("two floating-point types")), "{found:?}");
    // Where nothing is computed, nothing has to be converted.
    assert_eq!(warnings(&format!("predict {run} --cudnn-workspace 0")), Vec::<String>::new());
}

#[test]
fn dropout_that_no_kernel_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let config =
        r#"{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 50}"#;
    std::fs::write(&path, config).unwrap();
    let train = |more: &str| format!("train --backend cpu --model-file {} --batch 2 --steps 1{more}", path.display());
    warns(&train(""), "without its dropout");
    assert_eq!(warnings(&train(" --attention eager")), Vec::<String>::new());
}

#[test]
fn nothing_where_nothing_is_left_out() {
    for line in [
        "predict --model mlp --steps 1",
        "predict --model simple-cnn --steps 1 --cudnn-workspace 0",
        "predict --model gpt --steps 1 --attention sdpa --precision bf16 --cudnn-workspace 1MiB",
        "train --backend cpu --like native --model simple-cnn --batch 4 --steps 1",
    ] {
        assert_eq!(warnings(line), Vec::<String>::new(), "{line}");
    }
    let report = json(&["train", "--backend", "cpu", "--model", "mlp", "--steps", "1"]);
    assert_eq!(report["warnings"], Value::Array(Vec::new()));
}

/// Where both streams go to one terminal, the answer is first.
#[test]
fn notes_come_after_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    let text = r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 100, "n_embd": 32, "n_layer": 1, "n_head": 2,
        "n_positions": 64, "transformers_version": "4.45.2"}"#;
    std::fs::write(&config, text).unwrap();
    for (words, answer) in [
        (&["predict", "--batch", "2", "--gpu", "1GiB"][..], "Yes: "),
        (&["predict", "--batch", "2", "--gpu", "2MiB"], "No: "),
        (&["fit", "--gpu", "1GiB", "--maximum", "8"], ""),
    ] {
        let shown = tempfile::tempfile().unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(words).args(["--transformers", "4.45", "--model-file"]).arg(&config);
        command.stdout(shown.try_clone().unwrap()).stderr(shown.try_clone().unwrap()).status().unwrap();
        let mut text = String::new();
        let mut shown = shown;
        std::io::Seek::rewind(&mut shown).unwrap();
        std::io::Read::read_to_string(&mut shown, &mut text).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.starts_with(answer) && !first.contains("predicted by"), "{text}");
        let note = rest.find("transformers 4.45: predicted by").unwrap_or_else(|| panic!("{text}"));
        assert!(rest.find("error: ").is_none_or(|error| note < error), "{text}");
    }
}
