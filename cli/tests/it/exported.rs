//! `model.pt2` on the command line: output, refusals, exit codes.

use crate::common::{done, json, refused, unpacked_export, vramlab};
use crate::markdown::blocks;

fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_prediction_names_the_loss_and_the_line_of_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("nanogpt", folder.path());
    let said = unbroken(&done(&["predict", "--model-file", &path, "--batch", "16", "--gpu", "24GiB", "--full"]));
    assert!(said.contains("nanogpt.pt2, batch 16 × 32 tokens, float32, adamw"), "{said}");
    assert!(said.contains("runs in networks.py:168; "), "{said}");
    let found = json(&["predict", "--model-file", &path, "--batch", "16", "--gpu", "24GiB"]);
    assert_eq!(found["settings"]["batch"], 16);
    // Without `--batch`, the batch of the example counts.
    let found = json(&["predict", "--model-file", &path, "--gpu", "24GiB"]);
    assert_eq!(found["settings"]["batch"], 2);
}

/// An error is the screen of `docs/import.md`: two operators of this network are given names that nobody knows.
#[test]
fn operators_that_are_not_supported_are_named_as_the_document_shows() {
    let folder = tempfile::tempdir().unwrap();
    unpacked_export("cnn", folder.path());
    let rename = "import zipfile\nold, new = zipfile.ZipFile('cnn.pt2'), zipfile.ZipFile('model.pt2', 'w')\nfor name in old.namelist():\n    \
                  data = old.read(name).replace(b'aten.relu.default', b'aten.nonzero.default').replace(b'aten.linear.default', b'mine.own.default')\n    \
                  new.writestr(name, data)\nnew.close()";
    let made = std::process::Command::new("python3").current_dir(&folder).args(["-c", rename]).status().unwrap();
    assert!(made.success());
    let output = vramlab().current_dir(&folder).args(["predict", "model.pt2", "--batch", "32"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/import.md")).unwrap();
    let shown = blocks(&document).into_iter().find(|block| block.text.starts_with("error: ")).unwrap().text;
    assert_eq!(String::from_utf8(output.stderr).unwrap(), shown);
}

#[test]
fn the_loss_that_is_said_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("unet-nearest", folder.path());
    fn words<'a>(path: &'a str, loss: &'a str) -> [&'a str; 9] {
        ["predict", "--model-file", path, "--batch", "4", "--gpu", "24GiB", "--loss", loss]
    }
    let peak = |loss: &str| json(&words(&path, loss))["peak"]["bytes"].as_u64().unwrap();
    // A loss with targets needs more memory than one without.
    assert!(peak("mse") > peak("sum"));
    // Pictures are scores of each pixel; its cross entropy needs more than a plain sum.
    assert!(peak("cross-entropy") > peak("sum"));
    let said = unbroken(&refused(2, &["predict", "--model", "mlp", "--loss", "sum"]));
    assert!(said.contains("--loss: only a model.pt2 of torch.export has it"), "{said}");
    let path = unpacked_export("vae", folder.path());
    let said = unbroken(&refused(2, &words(&path, "mean")));
    assert!(said.contains("--loss: mean has nothing to be computed from: the output"), "{said}");
    assert!(said.ends_with("is the loss itself"), "{said}");
}

#[test]
fn the_largest_batch_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("cnn", folder.path());
    let found = json(&["fit", "--model-file", &path, "--gpu", "128MiB"]);
    assert!(found.to_string().contains("\"largest\""), "{found}");
}

#[test]
fn weights_of_the_file_are_trained_on_the_cpu_and_a_file_without_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("cnn-weights", folder.path());
    let found = json(&["train", "--model-file", &path, "--batch", "4", "--steps", "3", "--backend", "cpu"]);
    let losses: Vec<f64> = serde_json::from_value(found["losses"].clone()).unwrap();
    assert!(losses.len() == 3 && losses[2] < losses[0], "{losses:?}");
    let path = unpacked_export("cnn", folder.path());
    let said =
        unbroken(&refused(2, &["train", "--model-file", &path, "--batch", "4", "--steps", "3", "--backend", "cpu"]));
    assert!(said.contains("the file has no values for it"), "{said}");
}

#[test]
fn a_batch_and_flags_that_the_export_does_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("mlp", folder.path());
    let said = unbroken(&refused(2, &["predict", "--model-file", &path, "--batch", "70000", "--gpu", "24GiB"]));
    assert!(said.contains("--batch: 70000: the file was exported for batches from 1 to 65536"), "{said}");
    for flag in [["--layers", "3"], ["--checkpoint", "blocks"], ["--head", "base"], ["--sequence", "8"]] {
        let said = refused(2, &[&["predict", "--model-file", &path, "--gpu", "24GiB"][..], &flag].concat());
        assert!(said.contains(flag[0]), "{said}");
    }
}

#[test]
fn a_plan_tries_the_micro_batches_that_the_export_holds_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("mlp", folder.path());
    let found = json(&["plan", "--model-file", &path, "--global-batch", "131072", "--gpu", "h100"]);
    let micro_batch = found["best"]["micro_batch"].as_u64().unwrap();
    assert!(micro_batch <= 65536, "the file was exported for batches from 1 to 65536: {micro_batch}");
}

#[test]
fn a_split_names_the_modules_of_each_device_and_show_numbers_its_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("nanogpt", folder.path());
    let split = ["predict", "--model-file", &path, "--batch", "8", "--micro-batches", "4", "--devices"];
    let found = json(&[&split[..], &["meta:0,meta:1", "--cut", "2"]].concat());
    assert_eq!(found["devices"][0]["modules"], "wte, wpe, drop, h.0");
    assert_eq!(found["devices"][1]["pieces"], serde_json::json!([2, 4]));
    let said = unbroken(&done(&[&split[..], &["meta:0,meta:1", "--cut", "2"]].concat()));
    assert!(said.contains("meta:0: wte, wpe, drop, h.0; meta:1: h.1, ln_f, lm_head."), "{said}");
    let said = unbroken(&refused(2, &[&split[..], &["meta:0,meta:1,meta:2,meta:3,meta:4"]].concat()));
    assert!(said.contains("--devices: 5 devices for a network of 4 pieces"), "{said}");
    let said = unbroken(&done(&["show", &path, "--full"]));
    assert!(said.contains("Pieces (--devices, --cut): 0: wte, wpe, drop; 1–2: h.0–1; 3: ln_f, lm_head."), "{said}");
}

#[test]
fn weights_of_the_file_are_trained_on_two_devices_as_on_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = unpacked_export("gpt-weights", folder.path());
    let run = ["train", "--model-file", &path, "--batch", "4", "--steps", "3"];
    let one = json(&[&run[..], &["--backend", "cpu"]].concat());
    let two = json(&[&run[..], &["--devices", "cpu:0,cpu:1"]].concat());
    assert_eq!(two["losses"], one["losses"]);
    assert!(two["losses"][2].as_f64() < two["losses"][0].as_f64());
}

/// A damaged export, a page of an error, another program's file: none of them is a table of TOML.
#[test]
fn a_file_with_the_ending_of_an_export_that_is_none_is_named_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt2");
    for text in ["<html>404</html>", "", "PK"] {
        std::fs::write(&path, text).unwrap();
        let said = refused(2, &["predict", "--model-file", &path.display().to_string()]);
        assert!(said.contains("model.pt2: is not an export: torch.export.save writes a zip archive"), "{said}");
    }
}

/// What the real PyTorch took, in a rehearsal of `scripts/export/lengths.py train NAME BATCH TOKENS`: allocated and reserved bytes.
const OF_LENGTHS: [(&str, &str, &str, u64, u64); 4] = [
    ("gemma3", "3", "256", 86_816_768, 100_663_296),
    ("gemma3", "5", "333", 110_075_392, 132_120_576),
    ("qwen3-moe", "3", "300", 88_322_560, 100_663_296),
    ("qwen3-moe", "5", "128", 82_619_392, 96_468_992),
];

#[test]
fn an_export_is_predicted_at_other_lengths_than_its_examples() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lengths")).unwrap();
    for (name, batch, tokens, allocated, reserved) in OF_LENGTHS {
        let path = unpacked_export(&format!("lengths/{name}"), folder.path());
        let found = json(&["predict", &path, "--batch", batch, "--sequence", tokens, "--gpu", "h100"]);
        let peak = |name: &str| found["peak"][name].as_u64().unwrap();
        assert_eq!(peak("reserved_bytes"), reserved, "{name} {batch} {tokens}");
        // With a window the cache of a layer is a part of its keys; there some kilobytes differ.
        let most = if name == "gemma3" { allocated / 10_000 } else { 0 };
        assert!(peak("bytes").abs_diff(allocated) <= most, "{name} {batch} {tokens}: {}", peak("bytes"));
    }
}

#[test]
fn a_length_that_the_graph_does_not_hold_for_is_refused_with_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lengths")).unwrap();
    let path = unpacked_export("lengths/gemma3", folder.path());
    let predicted = |flags: &[&str]| unbroken(&refused(2, &[&["predict", &path, "--batch", "2"], flags].concat()));
    let said = predicted(&["--sequence", "100"]);
    assert!(
        said.contains("--sequence: 100: the graph holds from 128 tokens on; export the network with an example"),
        "{said}"
    );
    let said = predicted(&["--attention", "eager"]);
    assert!(
        said.contains("--attention: eager: the graph has sdpa; model.set_attn_implementation(\"eager\")"),
        "{said}"
    );
    done(&["predict", &path, "--batch", "2", "--sequence", "128", "--attention", "sdpa", "--gpu", "24GiB"]);
    let fixed = unpacked_export("nanogpt", folder.path());
    let said = unbroken(&refused(2, &["predict", &fixed, "--sequence", "64"]));
    assert!(said.contains("--sequence: 64: the export fixes the length to that of its example, 32"), "{said}");
    let pictures = unpacked_export("cnn", folder.path());
    let said = unbroken(&refused(2, &["predict", &pictures, "--sequence", "64"]));
    assert!(said.contains("--sequence: no input of the export has a number for each token"), "{said}");
}
