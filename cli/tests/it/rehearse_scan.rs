//! `vramlab rehearse` over several values, on scripts with a stand-in for PyTorch.
#![cfg(target_os = "linux")]

use crate::common;
use std::fs;
use std::path::Path;

use crate::common::rehearsal::{SCRIPT, command};
use serde_json::Value;

/// Rehearses the script with this argument and three steps. Returns the exit code, result, stdout and stderr.
fn scan(folder: &Path, flags: &[&str], word: &str) -> (Option<i32>, Value, String, String) {
    let mut command = command(folder, flags);
    let output = command.args(["--", "python3"]).arg(SCRIPT).args([word, "steps=3"]);
    let output = output.output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(!stderr.contains("panicked"), "{stderr}");
    let text = fs::read_to_string(folder.join("answer.json")).unwrap_or_default();
    (output.status.code(), serde_json::from_str(&text).unwrap_or(Value::Null), stdout, stderr)
}

#[test]
fn a_scan_finds_the_law_and_the_largest_value() {
    let folder = tempfile::tempdir().unwrap();
    let run = |flags: &[&str], word: &str| scan(folder.path(), flags, word);
    // A parameter of 1 MiB, and 10 MB for each of the batch, on 100 MiB.
    let flags = ["--gpu", "100MiB", "--html", "scan.html", "-L", "batch", "1,2,4"];
    let (code, found, stdout, stderr) = run(&flags, "need={batch}0000000");
    assert_eq!((code, &found["schema"]), (Some(0), &"vramlab-rehearsal-scan-1".into()), "{stdout}{stderr}");
    // The tensors of 10 fit, and what a card may show for them does not.
    let largest = &found["largest"];
    assert_eq!((&largest["value"], &largest["perhaps"]), (&9.into(), &10.into()), "{stdout}");
    assert_eq!(largest["verified"], true, "{stdout}");
    let law = found["law"].as_array().unwrap();
    assert_eq!((law.len(), &law[0]["slope"], &law[0]["constant"]), (1, &1e7.into(), &1_048_576.0.into()), "{found}");
    let points = found["points"].as_array().unwrap();
    assert_eq!(points[0]["rehearsal"]["ranks"][0]["peak_allocated"], 11_048_576);
    let ten = points.iter().find(|point| point["values"][0] == "10").unwrap();
    assert_eq!((&ten["searched"], &ten["rehearsal"]["fits"]), (&true.into(), &true.into()));
    assert!(ten["rehearsal"]["upper_bytes"].as_u64().unwrap() > 100 << 20, "{ten}");
    assert!(stdout.contains("batch 9 is the largest that fits; 10 fits perhaps: both were rehearsed."), "{stdout}");
    common::fits(&stdout);
    assert!(fs::read_to_string(folder.path().join("scan.html")).unwrap().contains("is the largest that fits"));
    // A requested value that does not fit determines the exit code. Values that only the search tried do not.
    assert_eq!(run(&["--gpu", "100MiB", "-P", "batch", "8", "12", "-D", "4"], "need={batch}0000000").0, Some(1));
    let (code, found, ..) = run(&["-L", "env:USERS_OWN", "no,ran"], "user");
    assert_eq!((code, &found["largest"]), (Some(3), &Value::Null), "the script failed with the first");
    let fits: Vec<&Value> =
        found["points"].as_array().unwrap().iter().map(|point| &point["rehearsal"]["fits"]).collect();
    assert_eq!(fits, [&Value::Null, &true.into()]);
}

#[test]
fn a_script_of_several_streams_fits_surely_only_with_late_events() {
    let folder = tempfile::tempdir().unwrap();
    // With late events it reserves 20 MB more: 9 fits surely without them alone, 7 with them.
    let flags = ["--gpu", "100MiB", "-L", "batch", "1,2,9"];
    let (_, found, stdout, _) = scan(folder.path(), &flags, "streams=20000000,{batch}0000000");
    let largest = &found["largest"];
    assert_eq!((&largest["value"], &largest["perhaps"]), (&7.into(), &9.into()), "{stdout}");
    assert!(stdout.contains("batch 7 is the largest that fits; 8 fits perhaps: both were rehearsed."), "{stdout}");
    let late = |value: &str| {
        let points = found["points"].as_array().unwrap();
        let point = points.iter().find(|point| point["values"][0] == value).unwrap();
        let events = point["rehearsal"]["not_as_on_a_card"].as_array().unwrap();
        events.iter().find(|one| one["event"] == "late_events").unwrap()["name"].clone()
    };
    assert_eq!((late("1"), late("9")), ("31048576".into(), "111048576".into()));
    // Who forbids a second run gets none.
    let (_, found, ..) =
        scan(folder.path(), &[&flags[..], &["--no-needs"]].concat(), "streams=20000000,{batch}0000000");
    assert_eq!(found["largest"]["value"], 9);
}

#[test]
fn what_cannot_be_scanned_is_refused_before_anything_runs() {
    let refused =
        |args: &[&str]| common::refused(2, &[&["rehearse"], args, &["--", "no-such-program", "{size}"]].concat());
    assert!(refused(&["-L", "batch", "1,2"]).contains("{batch} is nowhere in the command"));
    assert!(refused(&["-L", "env:LD_PRELOAD", "a"]).contains("needs this variable"));
    assert!(refused(&["-L", "size", "1", "-L", "size", "2"]).contains("scanned twice"));
    assert!(refused(&["-L", "size", "1,2", "--snapshot", "run.pickle"]).contains("--snapshot"));
    assert!(refused(&["--continue", "scan.json"]).contains("--continue"));
}

#[test]
fn a_value_that_does_not_fit_is_answered_by_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    // A parameter of 1 MiB, and 10 MB for each of the batch, on 100 MiB.
    let (code, found, stdout, stderr) =
        scan(folder.path(), &["--gpu", "100MiB", "-L", "batch", "24"], "need={batch}0000000");
    assert_eq!((code, &found["largest"]["value"]), (Some(1), &9.into()), "{stdout}{stderr}");
    let entries = found["tries"]["entries"].as_array().unwrap();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((&entry["change"], &entry["checked"]), (&"batch 9, the largest that fits".into(), &true.into()));
    let (peak, left) = (91_048_576u64, (100u64 << 20) - 91_048_576);
    assert_eq!((&entry["peak_bytes"], &entry["reserved_bytes"]), (&peak.into(), &peak.into()));
    assert_eq!(entry["left_bytes"], left);
    assert!(stdout.contains("Try (each was rehearsed)") && stdout.lines().count() <= 22, "{stdout}");
    common::fits(&stdout);
    // The command repeats the rehearsal.
    let words = entry["command"].as_str().unwrap();
    assert!(words.starts_with("vramlab predict --gpu 104857600B --no-values -- python3 "), "{words}");
    let words = words.split_once(" -- python3 ").unwrap().1;
    assert_eq!(words, "script.py need=90000000 steps=3");
    let again = folder.path().join("again");
    fs::create_dir(&again).unwrap();
    let output = command(&again, &["--gpu", "104857600B", "--", "python3"]).args(words.split(' ')).output().unwrap();
    let again: Value = serde_json::from_str(&fs::read_to_string(again.join("answer.json")).unwrap()).unwrap();
    assert_eq!((output.status.code(), &again["ranks"][0]["peak_allocated"]), (Some(0), &peak.into()));
    // If all values fit, or none, there is no border to report.
    let (code, found, ..) = scan(folder.path(), &["--gpu", "100MiB", "-L", "batch", "1,2"], "need={batch}0000000");
    assert_eq!((code, &found["tries"]), (Some(0), &Value::Null));
    let (code, found, ..) = scan(folder.path(), &["--gpu", "2MiB", "-L", "batch", "1,2"], "need={batch}0000000");
    assert_eq!((code, &found["tries"]), (Some(1), &Value::Null));
}

#[test]
fn many_values_leave_the_answer_on_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let (code, found, stdout, stderr) =
        scan(folder.path(), &["--gpu", "60MiB", "-P", "batch", "1", "12"], "need={batch}0000000");
    assert_eq!((code, found["points"].as_array().unwrap().len()), (Some(1), 12), "{stdout}{stderr}");
    assert!(stdout.starts_with("batch 5 at most: python3 "), "{stdout}");
    assert!(stdout.contains("batch 5, the largest that fits") && stdout.contains("4 more values: --full"), "{stdout}");
    assert!(stdout.lines().count() <= 22, "{stdout}");
    common::fits(&stdout);
}

#[test]
fn parts_of_a_scan_of_rehearsals_are_the_scan() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--gpu", "100MiB", "-L", "batch", "1,2,4"];
    let part = |number: usize| {
        let part = format!("{number}/2");
        let (code, ..) = scan(folder.path(), &[&flags[..], &["--shard", &part]].concat(), "need={batch}0000000");
        assert_eq!(code, Some(0));
        let file = folder.path().join(format!("part-{number}.json"));
        fs::rename(folder.path().join("answer.json"), &file).unwrap();
        file.display().to_string()
    };
    let files = [part(1), part(2)];
    let one: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
    assert_eq!(
        (one["points"].as_array().unwrap().len(), &one["largest"], &one["law"]),
        (2, &Value::Null, &serde_json::json!([]))
    );
    let whole = common::json(&["report", &files[1], &files[0]]);
    let values: Vec<&str> =
        whole["points"].as_array().unwrap().iter().map(|point| point["values"][0].as_str().unwrap()).collect();
    assert_eq!(
        (values, &whole["law"][0]["slope"], &whole["interrupted"]),
        (vec!["1", "2", "4"], &1e7.into(), &false.into())
    );
    let ran = common::run(&["report", &files[0]]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("Missing: 1 of 3 runs; 1 of 2 parts are here: batch 2 (part 2 of 2)\n"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_scheduler_says_which_rehearsals() {
    let folder = tempfile::tempdir().unwrap();
    let run = |part: &str, variables: &[(&str, &str)]| {
        let mut command = command(folder.path(), &["--gpu", "100MiB", "-L", "batch", "1,2,4", "--shard", part]);
        for name in ["ID", "MIN", "MAX", "STEP", "COUNT"] {
            command.env_remove(format!("SLURM_ARRAY_TASK_{name}"));
        }
        command.env_remove("JOB_COMPLETION_INDEX").envs(variables.iter().copied());
        let output =
            command.args(["--", "python3"]).arg(SCRIPT).args(["need={batch}0000000", "steps=3"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value =
            serde_json::from_str(&fs::read_to_string(folder.path().join("answer.json")).unwrap()).unwrap();
        let points = found["points"].as_array().unwrap();
        points.iter().map(|point| point["values"][0].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(run("auto", &[("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_TASK_COUNT", "2")]), ["2"]);
    assert_eq!(run("auto/2", &[("JOB_COMPLETION_INDEX", "0")]), ["1", "4"]);
}
