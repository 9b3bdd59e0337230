//! Parts of scans, for several machines, and the whole put together.

use crate::common::{json, refused, run, vramlab};

use serde_json::Value;
use std::path::Path;

const SCAN: [&str; 9] = ["predict", "--model", "mlp", "--steps", "1", "-L", "batch", "8,16,24,32,40", "-q"];

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// Writes the parts of a scan; returns their files.
fn parts(folder: &Path, words: &[&str], count: usize) -> Vec<String> {
    let one = |index: usize| {
        let (file, part) = (path(folder, &format!("part-{index}.json")), format!("{index}/{count}"));
        let ran = run(&[words, &["--shard", &part, "--json", &file]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        file
    };
    (1..=count).map(one).collect()
}

fn merged(files: &[String]) -> (Option<i32>, String, String) {
    let words: Vec<&str> = ["report"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let ran = run(&words);
    (ran.code, ran.stdout, ran.stderr)
}

#[test]
fn parts_of_a_scan_are_the_scan() {
    let folder = tempfile::tempdir().unwrap();
    let files = parts(folder.path(), &SCAN, 2);
    let (code, text, _) = merged(&files);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("Complete: all 5 runs, from 2 of 2 parts\n"), "{text}");
    // As if it had never been divided.
    let whole = json(&SCAN);
    assert_eq!(json(&["report", &files[1], &files[0]]), whole);
    let page = path(folder.path(), "page.html");
    assert_eq!(run(&["report", &files[0], &files[1], "-o", &page]).code, Some(0));
    assert!(std::fs::read_to_string(page).unwrap().contains("40"));
}

#[test]
fn what_is_missing_is_named_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let files = parts(folder.path(), &SCAN, 3);
    let (code, text, _) = merged(&files[..2]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("Missing: 1 of 5 runs; 2 of 3 parts are here: batch 24 (part 3 of 3)\n"), "{text}");
    // A part of another scan is not put in its place.
    let other = [&SCAN[..2], &["simple-cnn"], &SCAN[3..]].concat();
    let elsewhere = tempfile::tempdir().unwrap();
    let others = parts(elsewhere.path(), &other, 3);
    let (code, text, _) = merged(&[&files[..2], &others[2..]].concat());
    assert_eq!((code, text.matches("Missing: ").count()), (Some(1), 2), "{text}");
}

#[test]
fn experiments_are_divided_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["run", "batch-size", "equation", "--backend", "meta", "-q"];
    let files = parts(folder.path(), &words, 2);
    let (code, text, _) = merged(&files);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("Complete: all 2 runs, from 2 of 2 parts\n"), "{text}");
    let (code, text, _) = merged(&files[1..]);
    assert_eq!(code, Some(1));
    assert!(text.contains("batch-size (part 1 of 2)"), "{text}");
    // More parts than experiments: the last has nothing to do.
    let last = run(&[&words[..], &["--shard", "3/3"]].concat());
    assert_eq!((last.code, last.stdout.as_str()), (Some(0), ""));
}

#[test]
fn a_scheduler_says_which_part() {
    let scan = |variables: &[(&str, &str)]| {
        let mut command = vramlab();
        let known = ["ID", "MIN", "MAX", "STEP", "COUNT"].map(|name| format!("SLURM_ARRAY_TASK_{name}"));
        for name in known {
            command.env_remove(name);
        }
        command.env_remove("JOB_COMPLETION_INDEX").envs(variables.iter().copied());
        let output = command.args(SCAN).args(["--shard", "auto", "--json", "-"]).output().unwrap();
        (output.status.code(), output.stdout)
    };
    let slurm = [("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_ARRAY_TASK_MIN", "6"), ("SLURM_ARRAY_TASK_COUNT", "3")];
    let (code, stdout) = scan(&slurm);
    let found: Value = serde_json::from_slice(&stdout).unwrap();
    let batches: Vec<_> =
        found["results"].as_array().unwrap().iter().map(|run| run["parameters"]["batch"].clone()).collect();
    assert_eq!((code, batches), (Some(0), vec![16.into(), 40.into()]));
    assert_eq!((found["shard"]["index"].as_u64(), found["shard"]["count"].as_u64()), (Some(2), Some(3)));
    assert_eq!(scan(&[]).0, Some(2));
}

#[test]
fn what_has_no_parts_is_refused() {
    for words in [
        &["predict", "--model", "mlp", "--shard", "1/2"][..],
        &["train", "--model", "mlp", "--shard", "1/2"],
        &["predict", "--model", "mlp", "-L", "batch", "1,2", "--shard", "3/2"],
    ] {
        assert!(refused(2, words).contains("--shard"), "{words:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let events = path(folder.path(), "events.json");
    run(&["train", "--model", "mlp", "--backend", "meta", "--steps", "1", "--events", &events]);
    assert!(refused(2, &["report", &events]).contains("-o"));
}
