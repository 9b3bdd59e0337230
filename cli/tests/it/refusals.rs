//! Bad input: the right exit code, one clear error, nothing on stdout, nothing on the disk.

use crate::common::{refused, run};

use std::fs;

#[test]
fn bad_usage_is_2_and_names_what_is_wrong() {
    for (args, part) in [
        (&["train", "--nosuch"][..], "--nosuch"),
        (&["train", "--model", "vgg"], "vgg"),
        (&["train", "--backend", "abacus"], "abacus"),
        (&["train", "--batch", "0"], "--batch: must be at least 1"),
        (&["train", "--batch", "-1"], "a whole number, not negative, is expected"),
        (&["train", "--seed", "-1"], "--seed <"),
        (&["train", "--memory-limit", "-1"], "--memory-limit <"),
        (&["train", "--batch", "99999999999999999999"], "99999999999999999999"),
        (&["train", "--batch", "9223372036854775807"], "--batch: 9223372036854775807"),
        (&["train", "--accumulate", "0"], "--accumulate: must be at least 1"),
        (&["train", "--model", "mlp", "--width", "0"], "--width"),
        (&["train", "--model", "mlp", "--width", "4000000000"], "4000000000"),
        (&["train", "--model", "gpt", "--heads", "3"], "3 heads"),
        (&["train", "--model", "mlp", "--heads", "3"], "--heads"),
        (&["train", "--optimizer", "sgd", "--amsgrad"], "--amsgrad"),
        (&["train", "--lr", "nan"], "must be finite"),
        (&["train", "--lr", "-1"], "must not be negative"),
        (&["train", "--memory-limit", "8 apples"], "expected a size"),
        (&["train", "--memory-limit", "0"], "at least 1 byte"),
        (&["train", "--memory-fraction", "1.5"], "between 0 and 1"),
        (&["train", "--alloc-conf", "nosuch:1"], "--alloc-conf"),
        (&["train", "--alloc-conf", "expandable_segments:True", "--allocator", "direct"], "--alloc-conf"),
        (&["train", "--like", "torch-0.1"], "torch-0.1"),
        (&["predict", "--like", "torch"], "a release such as torch-2.11"),
        (&["predict", "--like", "torch-1.13"], "PyTorch 1.13 was not recorded; the nearest profile is torch-2.7-sm90"),
        (
            &["predict", "--like", "torch-2.6"],
            "PyTorch 2.6 has no profile; the nearest is torch-2.7-sm90: 149 recorded programs have the same peaks",
        ),
        (
            &["predict", "--like", "torch-2.3"],
            "the nearest profile is torch-2.7-sm90 (how far it is off was not measured)",
        ),
        (
            &["predict", "--like", "torch-2.16-sm80"],
            "PyTorch 2.16 was not recorded; the nearest profile is torch-2.15-sm80",
        ),
        (
            &["predict", "--like", "torch-2.13-sm70"],
            "PyTorch 2.13 was not recorded on compute capability 7.0; the nearest profile is torch-2.13-sm75",
        ),
        (&["train", "--data", "/nonexistent/images"], "/nonexistent/images"),
        (&["train", "--model", "gpt", "--data", "digits", "--backend", "meta"], "--data"),
        (&["train", "--backend", "meta", "--cuda-graph"], "--cuda-graph: backend meta: has no graphs of kernels"),
        (&["predict", "--cuda-graph"], "--cuda-graph"),
        (
            &["train", "--backend", "cpu", "--tf32", "conv"],
            "--tf32: backend cpu: has no TF32: it computes float32 as it is",
        ),
        (&["train", "--tf32", "matmul"], "[possible values: conv, all]"),
        (&["train", "--config", "/nonexistent/file.toml"], "/nonexistent/file.toml"),
        (&["train", "--model-file", "/nonexistent/file.toml"], "/nonexistent/file.toml"),
        (&["train", "--model-file", "/"], "/: a directory, not a network"),
        (&["train", "-L", "json", "a,b"], "--json"),
        (&["train", "-L", "batch", "1,x"], "batch=x"),
        (&["train", "-L", "batch", "1,0"], "--batch"),
        (&["train", "-P", "batch", "8", "1"], "-P batch 8 1"),
        (&["train", "--json", "-", "--export-csv", "-"], "only one result"),
        (&["run", "nosuch-experiment"], "nosuch-experiment"),
        (&["run", "all", "--set", "nosuch=3"], "nosuch"),
        (&["run", "all", "--set", "batch=x"], "batch=x"),
        (&["run", "batch-size", "--set", "batch=4"], "two different batches"),
        (&["run", "release", "--set", "batch=8,16"], "release takes one value"),
        (&["run", "batch-size", "leak", "--backend", "meta", "--set", "steps=1"], "leak: batch, steps"),
        (&["predict", "--gpu", "a lot"], "a lot"),
        (&["completions", "tcsh"], "tcsh"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let error = refused(2, args);
        assert!(error.contains(part) || run(args).stderr.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn absent_devices_are_3() {
    for args in [&["train", "--backend", "meta", "--device", "7"][..], &["run", "all", "--device", "7"]] {
        assert!(refused(3, args).contains("no device 7"), "{args:?}");
    }
}

#[test]
fn results_that_cannot_be_written_are_known_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir(inside("taken")).unwrap();
    for (flag, file, part) in [
        ("--json", inside("no/such/result.json"), "no such directory"),
        ("--export-csv", inside("taken"), "it is a directory"),
        ("--export-markdown", inside("no/such/result.md"), "no such directory"),
        ("--events", inside("no/such/events.json"), "no such directory"),
    ] {
        let error = refused(2, &["train", "--backend", "meta", flag, &file]);
        assert!(error.contains(&file) && error.contains(part), "{error}");
    }
    let result = inside("result.json");
    refused(2, &["train", "--backend", "meta", "--batch", "0", "--json", &result]);
    refused(2, &["train", "--backend", "meta", "--json", &result, "--events", &result]);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["taken"], "nothing is left behind");
}

#[test]
fn broken_files_name_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml").display().to_string();
    for (text, part) in [
        ("batch = 1\nsteps = = 3\n", "settings.toml:2"),
        ("bach = 3\n", "unknown key \"bach\""),
        ("batch = \"many\"\n", "many"),
        ("batch = { size = 3 }\n", "table"),
        ("nesterov = 1\n", "expected true or false"),
        ("config = \"other.toml\"\n", "unknown key \"config\""),
        ("help = true\n", "unknown key \"help\""),
        ("parameter-list = [\"batch\"]\n", "parameter-list"),
        ("\u{0}", "settings.toml:1"),
        // Refused by the network: nobody typed these flags.
        ("layers = 3\n", "settings.toml: layers: model simple-cnn has no such option"),
        ("model = \"gpt\"\ncheckpoint = \"1,99\"\n", "settings.toml: checkpoint: gpt has no block 99"),
    ] {
        fs::write(&file, text).unwrap();
        let error = refused(2, &["train", "--backend", "meta", "--config", &file]);
        assert!(error.contains("settings.toml") && error.contains(part), "{text:?}: {error}");
    }
    fs::write(&file, "layers = 3\n").unwrap();
    let error = refused(2, &["train", "--backend", "meta", "--config", &file, "--layers", "4"]);
    assert!(error.contains("--layers: model"), "the flag wins, and is named: {error}");
    for text in ["[[layer]]\ntype = \"nosuch\"\n", "[input", ""] {
        fs::write(&file, text).unwrap();
        let error = refused(2, &["train", "--backend", "meta", "--model-file", &file]);
        assert!(error.contains("settings.toml"), "{text:?}: {error}");
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    refused(2, &["train", "--backend", "meta", "--config", &file]);
    refused(2, &["train", "--backend", "meta", "--model-file", &file]);
}

/// A loss of hidden states: one error that names it, for each of what was not recorded with it.
#[test]
fn a_loss_in_chunks_is_an_error_where_it_was_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    let llama = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2,
        "intermediate_size": 160, "num_attention_heads": 4}"#;
    fs::write(&config, llama).unwrap();
    // Two pictures of one point, as MNIST's files are.
    let data = folder.path().join("train-images-idx3-ubyte");
    fs::write(&data, [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7, 7]).unwrap();
    fs::write(folder.path().join("train-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 2, 0, 1]).unwrap();
    let (config, data) = (config.display().to_string(), data.display().to_string());
    for (words, part) in [
        (&["--loop", "trainer"][..], "--loss: with --loop trainer the network computes its own"),
        (&["--data-parallel", "2", "--zero", "3"], "--loss: vramlab supports only the network's own with zero 3"),
        (&["--devices", "meta:0,meta:1"], "without --loss it can be divided"),
        (&["--data", &data], "--loss: the accuracy on a data set needs the scores of all tokens; leave out --data"),
        (&["--loss", "chunked:0"], "N from 1 to 4096"),
        (&["--loss", "chunked:4097"], "N from 1 to 4096"),
    ] {
        let loss: &[&str] = if words.contains(&"--loss") { &[] } else { &["--loss", "chunked"] };
        let said = refused(2, &[&["predict", &config], loss, words].concat());

        assert!(said.contains(part) && !said.contains("not built in"), "{words:?}: {said}");
        assert!(!said.contains("error:"), "one error: {words:?}: {said}");
    }
}
