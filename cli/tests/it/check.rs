//! `check`: which lock files pass, which fail, and which causes are named.

use crate::common;
use crate::common::{done, fits, refused, run};

use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Lock file in a temporary folder.
struct Locked {
    directory: tempfile::TempDir,
    file: String,
}

impl Locked {
    fn new(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.lock.json").display().to_string();
        let locked = Self { directory, file };
        done(&locked.words(&[&["--update"], flags].concat()));
        locked
    }

    fn words<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["check", "--baseline", &self.file], more].concat()
    }

    fn json(&self, code: i32, more: &[&str]) -> Value {
        let ran = run(&self.words(&[more, &["--json", "-"]].concat()));
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.file.clone().into()
    }
}

#[test]
fn the_figure_with_cudnn_is_pinned_too_and_files_without_it_keep_theirs() {
    const NETWORK: [&str; 8] = ["--model", "resnet18", "--batch", "2", "--gpu", "rtx3060", "--steps", "2"];
    let locked = Locked::new(&NETWORK);
    let found = locked.json(0, &[]);
    let expected = found["runs"][0]["now"]["memory"]["expected"].as_u64().unwrap();
    let predicted = common::json(&[&["predict"], &NETWORK[..]].concat());
    let parts = predicted["parts"].as_array().unwrap();
    assert_eq!(expected, parts[..2].iter().map(|part| part["expected_bytes"].as_u64().unwrap()).sum::<u64>());
    // It needed less once.
    let mut lock: Value = serde_json::from_str(&locked.text()).unwrap();
    lock["runs"]["default"]["memory"]["expected"] = (expected - 1).into();
    fs::write(locked.path(), lock.to_string()).unwrap();
    let grown = locked.json(1, &[]);
    assert_eq!(grown["runs"][0]["comparison"]["grew"], serde_json::json!(["expected"]));
    // A file from before has no such figure.
    lock["runs"]["default"]["memory"].as_object_mut().unwrap().remove("expected");
    fs::write(locked.path(), lock.to_string()).unwrap();
    let kept = locked.json(0, &[]);
    assert_eq!(kept["runs"][0]["comparison"]["figures"].as_array().unwrap().len(), 3);
}

const GPT: [&str; 9] = ["--model", "gpt", "--layers", "2", "--batch", "4", "--steps", "2", "--tied"];

#[test]
fn what_is_unchanged_passes_and_needs_no_flags() {
    let locked = Locked::new(&GPT);
    let found = locked.json(0, &[]);
    assert_eq!((&found["schema"], &found["verdict"]), (&"vramlab-check-1".into(), &"same".into()));
    assert_eq!(found["passed"], true);
    // The figures are those of the prediction.
    let predicted = common::json(&[&["predict"], &GPT[..]].concat());
    let memory = &found["runs"][0]["now"]["memory"];
    assert_eq!(memory["peak"]["allocated"], predicted["peak"]["bytes"]);
    assert_eq!(memory["peak"]["reserved"], predicted["peak"]["reserved_bytes"]);
    assert_eq!(memory["peak"]["op"], predicted["peak"]["op"]);
    for (category, bytes) in predicted["peak"]["by_category"].as_object().unwrap() {
        assert_eq!(memory["by_category"][category].as_u64().unwrap_or(0), bytes.as_u64().unwrap(), "{category}");
    }
    let held: u64 = predicted["by_category"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(memory["held"], held);
    let text = done(&locked.words(&[]));
    assert!(text.contains("default: as before, event by event"), "{text}");
    fits(&text);
}

#[test]
fn growth_fails_and_names_the_operator() {
    let locked = Locked::new(&GPT);
    let ran = run(&locked.words(&["--batch", "8"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("What grew at the peak") && ran.stdout.contains("batch 4 → 8"), "{}", ran.stdout);
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("default: memory grew (tolerance 0): peak allocated by +"), "{text}");
    assert!(!ran.stderr.contains("error"), "the answer is printed once: {}", ran.stderr);
    // Dropout saves a new mask. The message names this one cause.
    let found = locked.json(1, &["--dropout", "0.5"]);
    let parts = found["runs"][0]["comparison"]["parts"].as_array().unwrap();
    let masks = |part: &&Value| part["name"].as_str().unwrap().starts_with("dropout>native_dropout of blocks.");
    assert!(parts.iter().filter(masks).count() >= 4, "{parts:?}");
    assert!(parts.iter().filter(masks).all(|part| part["baseline"] == 0));
    assert_eq!(found["runs"][0]["comparison"]["grew"][0], "allocated");
}

#[test]
fn shrinking_passes_unless_strict_and_an_update_takes_it() {
    let locked = Locked::new(&GPT);
    let text = done(&locked.words(&["--batch", "2"]));
    assert!(text.contains("less than before; --update"), "{text}");
    assert!(failed(&locked.words(&["--batch", "2", "--strict"])).contains("shrank (--strict)"));
    // Without flags an update repeats the run in the file.
    let before = locked.text();
    done(&locked.words(&["--update"]));
    assert_eq!(locked.text(), before);
    done(&locked.words(&[&["--update"], &GPT[..], &["--batch", "2"]].concat()));
    assert_eq!(locked.json(0, &[])["verdict"], "same");
    assert_ne!(locked.text(), before);
    assert_eq!(fs::read_dir(locked.directory.path()).unwrap().count(), 1, "nothing is left beside the file");
}

/// Runs a check that fails. Returns what it prints, in one line.
fn failed(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_peak_that_was_edited_down_is_growth() {
    let locked = Locked::new(&GPT);
    let peak = locked.json(0, &[])["runs"][0]["now"]["memory"]["peak"]["allocated"].as_u64().unwrap();
    let edited =
        locked.text().replacen(&format!("\"allocated\": {peak}"), &format!("\"allocated\": {}", peak - 512), 1);
    assert_ne!(edited, locked.text());
    fs::write(locked.path(), edited).unwrap();
    assert!(failed(&locked.words(&[])).contains("peak allocated by +512 B. The peak is reached by "));
    done(&locked.words(&["--tolerance", "512"]));
    assert!(failed(&locked.words(&["--tolerance", "511B"])).contains("memory grew"));
    done(&locked.words(&["--tolerance", "5%"]));
    done(&locked.words(&["--update"]));
    assert_eq!(locked.json(0, &[])["verdict"], "same");
}

#[test]
fn a_model_file_is_read_anew() {
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("own.toml");
    let text = |out: usize| {
        format!(
            "batch = 8\nsteps = 2\n[input]\nshape = [64]\n[[layer]]\ntype = \"linear\"\nout = {out}\n\
            [[layer]]\ntype = \"linear\"\nout = 10\n[loss]\ntype = \"cross-entropy\"\n"
        )
    };
    fs::write(&model, text(32)).unwrap();
    let model_file = model.display().to_string();
    let locked = Locked::new(&["--model-file", &model_file]);
    done(&locked.words(&[]));
    fs::write(&model, text(512)).unwrap();
    let found = locked.json(1, &[]);
    let error = found["runs"][0]["failure"].as_str().unwrap();
    assert!(
        error.contains("memory grew")
            && error.contains("most in ")
            && error.contains(" of 0 and 1 alike (parameter, +"),
        "{error}"
    );
    fs::write(&model, text(32).replace("batch = 8", "batch = 4096")).unwrap();
    let ran = run(&locked.words(&[]));
    assert_eq!((ran.code, ran.stdout.contains("batch 8 → 4096")), (Some(1), true), "{}", ran.stdout);
}

#[test]
fn several_runs_share_a_file() {
    let locked = Locked::new(&GPT);
    done(&locked.words(&["--update", "--name", "net", "--model", "mlp", "--backend", "cpu", "--steps", "1"]));
    let found = locked.json(0, &[]);
    let names: Vec<&str> = found["runs"].as_array().unwrap().iter().filter_map(|run| run["name"].as_str()).collect();
    assert_eq!((names.as_slice(), &found["verdict"]), (["default", "net"].as_slice(), &"same".into()));
    // Only the requested run is made.
    let one = locked.json(1, &["--name", "net", "--batch", "256"]);
    assert_eq!(one["runs"].as_array().unwrap().len(), 1);
    assert_eq!(one["runs"][0]["now"]["settings"]["backend"], "cpu");
    assert!(refused(2, &locked.words(&["--name", "rnn"])).contains("there are: default, net"));
}

#[test]
fn what_is_no_lock_file_is_refused_and_kept() {
    let locked = Locked::new(&GPT);
    let whole = locked.text();
    let absent = locked.directory.path().join("absent.json").display().to_string();
    assert!(refused(2, &["check", "--baseline", &absent]).contains("no such file; this writes it: vramlab check"));
    let flags = whole.replace("\"batch\": 4", "\"batch\": \"many\"");
    let foreign = whole.replace("\"steps\": 2", "\"json\": \"out.json\"");
    for (contents, part) in [
        (&whole[..whole.len() / 2], "EOF while parsing"),
        ("", "EOF while parsing"),
        ("{\"schema\": \"vramlab-train-1\"}", "a result of vramlab, not a memory lock file"),
        ("{\"version\": 3}", "not a lock file"),
        (&whole.replace("\"reserved\"", "\"deserved\""), "missing field `reserved` at line "),
        ("{\"schema\": \"vramlab-lock-1\", \"version\": \"0\", \"runs\": {}}", "runs: there is none"),
        (&flags, "run default: flags.batch: expected a whole number, found \"many\""),
        (&foreign, "run default: flags.json: a run has no such field"),
    ] {
        fs::write(locked.path(), contents).unwrap();
        let error = refused(2, &locked.words(&[]));
        assert!(error.contains(part) && error.contains("memory.lock.json: "), "{error}");
        assert_eq!(locked.text(), contents, "what was refused is as it was");
    }
    fs::write(locked.path(), "{ half a fi").unwrap();
    refused(2, &locked.words(&[&["--update"], &GPT[..]].concat()));
    assert_eq!(locked.text(), "{ half a fi", "an update replaces no file that it cannot read");
}

#[test]
fn fields_that_a_locked_run_would_ignore_are_refused() {
    let locked = Locked::new(&GPT);
    let whole = locked.text();
    for (field, part) in [
        ("\"devices\": \"meta:0,meta:1\"", "--devices: this is a run on one device"),
        ("\"data-parallel\": 4", "--data-parallel: this is a run on one device"),
        ("\"load\": \"w.safetensors\"", "a locked run begins anew"),
    ] {
        fs::write(locked.path(), whole.replace("\"steps\": 2", field)).unwrap();
        let error = refused(2, &locked.words(&[]));
        assert!(error.contains(part) && error.contains("run default"), "{field}: {error}");
    }
}

#[test]
fn a_run_that_cannot_be_made_writes_nothing() {
    let locked = Locked::new(&GPT);
    let before = locked.text();
    refused(1, &locked.words(&[&["--update"], &GPT[..], &["--memory-limit", "1MiB"]].concat()));
    refused(2, &locked.words(&[&["--update"], &GPT[..], &["--backend", "cpu", "--gpu", "h200"]].concat()));
    assert_eq!(locked.text(), before);
    let fit = refused(1, &locked.words(&["--memory-limit", "1MiB"]));
    assert!(fit.contains("out of memory"), "{fit}");
}

#[test]
fn several_at_once_lose_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("memory.lock.json");
    // A file that a killed process left behind does no harm.
    fs::write(directory.path().join(".memory.lock.json.lock"), "").unwrap();
    let names: Vec<String> = (0..12).map(|i| format!("r{i:02}")).collect();
    let start = |name: &String| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command
            .args(["check", "--update", "--model", "linear", "--steps", "1", "--name", name, "--baseline"])
            .arg(&file);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let running: Vec<_> = names.iter().map(start).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let lock: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let written: Vec<&String> = lock["runs"].as_object().unwrap().keys().collect();
    assert_eq!(written, names.iter().collect::<Vec<_>>());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside the file");
}
