//! Scans and configuration files.

use crate::common;
use crate::common::{done, fits, json, run};

use serde_json::{Value, json as value};
use std::fs;

#[test]
fn a_scan_has_a_row_per_combination() {
    let words =
        ["predict", "--model", "mlp", "--steps", "1", "-L", "batch", "32,64", "-P", "layers", "1", "3", "-D", "2"];
    let scan = json(&words);
    assert_eq!((&scan["schema"], &scan["parameters"]), (&"vramlab-scan-1".into(), &value!(["batch", "layers"])));
    let results = scan["results"].as_array().unwrap();
    let points: Vec<&Value> = results.iter().map(|result| &result["parameters"]).collect();
    let expected =
        [(32, 1), (32, 3), (64, 1), (64, 3)].map(|(batch, layers)| value!({ "batch": batch, "layers": layers }));
    assert_eq!(points, expected.iter().collect::<Vec<_>>());
    // A point is what the same flags give alone; what is said of one prediction only is not in it.
    let mut alone = json(&["predict", "--model", "mlp", "--steps", "1", "--batch", "64", "--layers", "3"]);
    for key in [
        "card",
        "budget_bytes",
        "fits",
        "needs",
        "notes",
        "summits",
        "techniques",
        "with_expandable_segments",
        "needs_peak",
        "with_cudnn",
        "checkpoints",
        "lower_bytes",
        "expected_bytes",
        "upper_bytes",
        "figures_of",
        "basis",
        "parts",
        "tries",
    ] {
        assert!(alone.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    // The sentence of a prediction is its verdict.
    let mut run = results[3]["run"].clone();
    for found in [&mut run, &mut alone] {
        assert!(found.as_object_mut().unwrap().remove("sentence").is_some());
    }
    assert_eq!(run, alone);
    let text = done(&words);
    fits(&text);
    assert!(text.contains("allocated") && text.contains("parameters"), "{text}");
    assert!(!text.contains("last loss"), "a column without figures says nothing: {text}");
}

#[test]
fn names_and_switches_can_be_scanned() {
    let scan = json(&[
        "predict",
        "--model",
        "mlp",
        "--steps",
        "2",
        "-L",
        "optimizer",
        "adam,adamw",
        "-L",
        "amsgrad",
        "true,false",
    ]);
    let peaks: Vec<u64> =
        scan["results"].as_array().unwrap().iter().map(|r| r["run"]["peak"]["bytes"].as_u64().unwrap()).collect();
    assert!(peaks[0] > peaks[1] && peaks[2] > peaks[3], "{peaks:?}");
}

#[test]
fn a_point_has_the_figures_and_the_verdict_that_it_has_alone() {
    let words = ["predict", "--model", "gpt2", "--steps", "1", "--gpu", "16GiB"];
    let scan = run(&[&words[..], &["-L", "batch", "1,8,16", "--json", "-"]].concat());
    assert_eq!(scan.code, Some(1), "{}", scan.stderr);
    let scan: Value = serde_json::from_str(&scan.stdout).unwrap();
    let points = scan["results"].as_array().unwrap();
    let verdicts: Vec<&Value> = points.iter().map(|point| &point["on_card"]["fits"]).collect();
    assert_eq!(verdicts, [&value!(true), &Value::Null, &value!(false)]);
    assert!(scan["sentence"].as_str().unwrap().contains("1 of 3 fit, 1 perhaps"), "{}", scan["sentence"]);
    for (batch, point) in ["1", "8", "16"].iter().zip(points) {
        let alone = run(&[&words[..], &["--batch", batch, "--json", "-"]].concat());
        let alone: Value = serde_json::from_str(&alone.stdout).unwrap();
        for name in ["lower_bytes", "expected_bytes", "upper_bytes", "fits", "basis"] {
            assert_eq!(point["on_card"][name], alone[name], "batch {batch}: {name}");
        }
    }
}

#[test]
fn a_point_that_does_not_fit_is_a_row() {
    let words =
        ["predict", "--model", "gpt2", "--steps", "1", "--gpu", "16GiB", "-L", "batch", "1,64,2", "--json", "-"];
    let ran = run(&words);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let scan: Value = serde_json::from_str(&ran.stdout).unwrap();
    let full: Vec<bool> =
        scan["results"].as_array().unwrap().iter().map(|r| !r["run"]["out_of_memory"].is_null()).collect();
    assert_eq!(full, [false, true, false]);
    // One whose batch alone is more than the device has is one too.
    let words =
        ["predict", "--model", "simple-cnn", "--steps", "1", "-L", "memory-limit", "1GiB,1MiB,2GiB", "--json", "-"];
    let ran = run(&words);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let scan: Value = serde_json::from_str(&ran.stdout).unwrap();
    let message = scan["results"][1]["run"]["out_of_memory"]["message"].as_str().unwrap();
    assert!(message.contains("for its inputs and targets alone"), "{message}");
    assert!(scan["results"][2]["run"]["peak"]["bytes"].as_u64() > Some(1 << 20));
}

#[test]
fn a_configuration_gives_flags_and_flags_win() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.toml").display().to_string();
    fs::write(&file, "model = \"mlp\"\nbatch = 16\nsteps = 1\nlr = 0.5\nmaximize = true\n").unwrap();
    let settings = |more: &[&str]| json(&[&["predict", "--config", &file], more].concat())["settings"].clone();
    let plain = settings(&[]);
    assert_eq!(
        (&plain["model"], &plain["batch"], &plain["lr"], &plain["maximize"]),
        (&"mlp".into(), &16.into(), &0.5.into(), &true.into())
    );
    let typed = settings(&["--batch", "4", "--model", "simple-cnn"]);
    assert_eq!((&typed["model"], &typed["batch"], &typed["lr"]), (&"simple-cnn".into(), &4.into(), &0.5.into()));
    fs::write(&file, "model = \"mlp\"\nsteps = 1\nparameter-list = [\"batch\", \"8,16\"]\n").unwrap();
    assert_eq!(json(&["predict", "--config", &file])["parameters"], value!(["batch"]));
    let scan = json(&["predict", "--config", &file, "-L", "width", "8,16,32"]);
    assert_eq!(scan["results"].as_array().unwrap().len(), 3);
}

#[test]
fn a_configuration_and_flags_make_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.toml").display().to_string();
    let said = |text: &str, words: &[&str]| {
        fs::write(&file, text).unwrap();
        run(&[words, &["--config", &file, "--steps", "1", "--model", "mlp", "--json", "-", "--quiet"]].concat())
    };
    let settings = |text: &str, words: &[&str]| -> Value {
        let ran = said(text, words);
        assert_eq!(ran.code, Some(0), "{text}: {}", ran.stderr);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["settings"].clone()
    };
    // A flag that says something only beside another one may stand in either place.
    let split = settings("devices = \"meta:0,meta:1\"\n", &["train", "--micro-batches", "2"]);
    assert_eq!((&split["devices"], &split["micro-batches"]), (&"meta:0,meta:1".into(), &2.into()));
    let ranks = settings("zero = 1\n", &["train", "--backend", "meta", "--data-parallel", "2"]);
    assert_eq!((&ranks["zero"], &ranks["data-parallel"]), (&1.into(), &2.into()));
    // As a table of numbers and text gives them, or as they would be typed.
    let typed = settings("batch = \"16\"\nbackend = \"meta\"\nmemory-limit = 1073741824\ncheckpoint = 1\n", &["train"]);
    assert_eq!((&typed["batch"], &typed["backend"], &typed["checkpoint"]), (&16.into(), &"meta".into(), &"1".into()));
    for (text, words, message) in [
        ("micro-batches = 2\n", &["train"][..], "run.toml: micro-batches: it goes only with devices"),
        ("devices = \"meta:0,meta:1\"\n", &["predict", "--data-parallel", "2", "--zero", "1", "--load"], "--load"),
        ("load = \"a\"\nresume = \"b\"\n", &["train"], "run.toml: resume: it does not go with load"),
        (
            "devices = \"meta:0,meta:1\"\nbackend = \"cpu\"\n",
            &["train"],
            "run.toml: backend: it does not go with devices",
        ),
        ("lr = nan\n", &["train"], "run.toml: lr: must be finite"),
        ("batch = 0\n", &["train"], "run.toml: batch: must be at least 1"),
        ("backend = \"gpu\"\n", &["train"], "run.toml: backend: unknown: \"gpu\"; known: auto"),
    ] {
        let ran = said(text, words);
        assert!(ran.code == Some(2) && ran.stderr.contains(message), "{text}: {}", ran.stderr);
    }
}

#[test]
fn the_settings_of_a_run_repeat_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("again.toml").display().to_string();
    let words =
        ["predict", "-v", "--model", "gpt", "--layers", "1", "--tied", "--steps", "1", "--gpu", "4GiB", "--json", "-"];
    let first = run(&words);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let lines: Vec<&str> = first.stderr.lines().filter(|line| line.contains(" = ")).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    let again = done(&["predict", "--config", &file, "--json", "-"]);
    // The same in everything but where type, tokens and batch came from, which is the file now.
    let [first, again] = [&first.stdout, &again].map(|text| {
        let mut run: Value = serde_json::from_str(text).unwrap();
        for premise in run["premises"].as_array_mut().unwrap() {
            assert!(premise.as_object_mut().unwrap().remove("source").is_some());
        }
        run
    });
    assert_eq!(first, again);
}

#[test]
fn a_model_file_is_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("own.toml").display().to_string();
    let text = "batch = 8\nsteps = 2\n[input]\nshape = [64]\n[[layer]]\ntype = \"linear\"\nout = 10\n\
        [loss]\ntype = \"cross-entropy\"\n[optimizer]\nname = \"momentum\"\nlr = 0.25\n";
    fs::write(&file, text).unwrap();
    let run = json(&["predict", "--model-file", &file]);
    let settings = &run["settings"];
    assert_eq!((&settings["batch"], &settings["steps"], &settings["lr"]), (&8.into(), &2.into(), &0.25.into()));
    assert_eq!((&settings["optimizer"], &run["parameters"]), (&"momentum".into(), &650.into()));
    let typed = json(&["predict", "--model-file", &file, "--optimizer", "adamw", "--batch", "4"]);
    assert_eq!((&typed["settings"]["optimizer"], &typed["settings"]["batch"]), (&"adamw".into(), &4.into()));
    assert_eq!(typed["settings"]["lr"], 0.25);
}

#[test]
fn a_scan_goes_on_with_what_was_done() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scan.json").display().to_string();
    let words =
        |batches: &'static str| ["train", "--model", "mlp", "--backend", "cpu", "--steps", "2", "-L", "batch", batches];
    let first = json(&words("8,16"));
    fs::write(&file, first.to_string()).unwrap();
    let scan = json(&[&words("8,16,32")[..], &["--continue", &file]].concat());
    let results = scan["results"].as_array().unwrap();
    assert_eq!((results.len(), &scan["interrupted"]), (3, &false.into()));
    // Times are never the same twice: these were not measured again.
    for point in 0..2 {
        assert_eq!(results[point]["run"], first["results"][point]["run"]);
    }
    assert_eq!(results[2]["parameters"]["batch"], 32);
    // A point that was stopped in its middle, and one with other settings, are run anew.
    let mut stopped = first.clone();
    stopped["results"][0]["run"]["interrupted"] = true.into();
    stopped["results"][1]["run"]["settings"]["lr"] = 7.into();
    fs::write(&file, stopped.to_string()).unwrap();
    let again = json(&[&words("8,16")[..], &["--continue", &file]].concat());
    assert_eq!(again["interrupted"], false);
    for point in 0..2 {
        let runs = [&again["results"][point]["run"], &first["results"][point]["run"]];
        assert_eq!(runs[0]["peak"], runs[1]["peak"]);
        assert_ne!(runs[0]["ms_per_step"], runs[1]["ms_per_step"]);
    }
    let text = done(&[&words("8,16")[..], &["--continue", &file]].concat());
    assert!(text.contains("allocated") && text.contains("last loss"), "{text}");
    fs::write(&file, "{\"schema\": \"vramlab-train-1\"}").unwrap();
    let foreign = common::refused(2, &[&words("8,16")[..], &["--continue", &file]].concat());
    assert!(foreign.contains("scan.json: schema: expected \"vramlab-scan-1\""), "{foreign}");
    let alone = common::refused(2, &["train", "--model", "mlp", "--continue", &file]);
    assert!(alone.contains("it needs the -L and -P"), "{alone}");
}

#[test]
fn what_a_run_begins_with_can_be_scanned() {
    let words = ["train", "--model", "mlp", "--backend", "meta", "-L", "load", "/nonexistent/a,/nonexistent/b"];
    assert!(common::refused(2, &words).contains("/nonexistent/a: "), "each point begins with its own file");
}

#[test]
fn experiments_on_several_devices_can_be_scanned() {
    let run = ["run", "model-parallel", "--devices", "meta:0,meta:1", "--set", "batch=32", "--set", "pieces=2"];
    let found = json(&[&run[..], &["-L", "seed", "1,2"]].concat());
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
}

#[test]
fn a_damaged_scan_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scan.json").display().to_string();
    for result in ["\"x\"", "1", "null", "[]", "{}", "[{}]", "{\"run\": 5}", "{\"run\": null}", "{\"run\": []}"] {
        let text = format!("{{\"schema\": \"vramlab-scan-1\", \"parameters\": [\"batch\"], \"results\": [{result}]}}");
        fs::write(&file, text).unwrap();
        let words = ["train", "--model", "mlp", "--backend", "meta", "-L", "batch", "1,2,3", "--continue", &file];
        let error = common::refused(2, &words);
        assert!(
            error.contains("scan.json: ") && (error.contains("missing field") || error.contains("invalid ")),
            "{error}"
        );
    }
}

#[test]
fn csv_leaves_empty_what_is_not_known() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scan.csv").display().to_string();
    let words = ["predict", "--model", "gpt2", "--steps", "1", "--gpu", "16GiB", "-L", "batch", "1,64"];
    let ran = run(&[&words[..], &["--export-csv", &file]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["batch", "parameters", "allocated", "reserved", "fits", "ms/step", "last loss"]);
    assert_eq!((lines[1][4], lines[1][5], lines[1][6]), ("yes", "", ""));
    assert_eq!(lines[2][1..4], ["", "", ""]);
    assert!(lines[2][4].starts_with("no: ") && !text.contains('–'), "{text}");
}
