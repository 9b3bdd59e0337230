//! By default every command counts like PyTorch. Files of releases with another default keep their meaning.

use crate::common;
use crate::common::{json, run};

use serde_json::Value;
use std::fs;

/// Peak reserved bytes for the first article's network by batch: recorded with PyTorch 2.11 on an H100, and with this program's own kernels.
const RECORDED: [(&str, u64, u64); 2] = [("128", 111_149_056, 44_040_192), ("32", 94_371_840, 25_165_824)];

#[test]
fn experiments_and_trainings_reserve_what_pytorch_was_recorded_to_reserve() {
    let reserved = |found: &Value, batch: &str| {
        let rows = found["rows"].as_array().unwrap();
        rows.iter().find(|row| row["setting"]["run"] == batch).unwrap()["measured"]["reserved_bytes"].clone()
    };
    let words = ["run", "batch-size", "--backend", "meta"];
    let (plain, native) = (json(&words), json(&[&words[..], &["--like", "native"]].concat()));
    for (batch, torch, ours) in RECORDED {
        assert_eq!((reserved(&plain, batch), reserved(&native, batch)), (torch.into(), ours.into()), "batch {batch}");
        let words = ["train", "--model", "simple-cnn", "--steps", "3", "--backend", "meta", "--batch", batch];
        assert_eq!(json(&words)["peak"]["reserved_bytes"], torch, "batch {batch}");
        assert_eq!(json(&[&words[..], &["--like", "native"]].concat())["peak"]["reserved_bytes"], ours);
    }
    assert_eq!(
        (&plain["settings"]["like"], &native["settings"]["like"]),
        (&"torch-2.11-sm90".into(), &"native".into())
    );
    let text = common::done(&[&words[..], &["--like", "torch-2.15-sm80"]].concat());
    assert!(text.contains("--like torch-2.15-sm80"), "the command to repeat it names the profile: {text}");
}

#[cfg(feature = "cpu")]
const CPU: [&str; 8] = ["train", "--model", "linear", "--backend", "cpu", "--steps", "2", "--batch"];

#[cfg(feature = "cpu")]
fn on_cpu<'a>(more: &[&'a str]) -> Vec<&'a str> {
    CPU.iter().copied().chain(more.iter().copied()).collect()
}

/// Checks that the message is on the terminal and among the warnings.
#[cfg(feature = "cpu")]
fn said(words: &[&str], warnings: &Value, part: &str) {
    let stderr = run(words).stderr;
    assert!(stderr.contains(part), "{stderr}");
    assert!(warnings.as_array().unwrap().iter().any(|text| text.as_str().unwrap().contains(part)), "{warnings}");
}

#[cfg(feature = "cpu")]
#[test]
fn a_locked_run_that_names_no_profile_is_measured_under_the_one_of_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("memory.lock.json").display().to_string();
    let check = ["check", "--baseline", &file];
    let net = ["--update", "--model", "linear", "--backend", "cpu", "--steps", "1"];
    json(&[&check[..], &net, &["--like", "native"]].concat());
    // A file of the time when `native` was the default: no flag names a profile.
    let mut lock: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let entry = &mut lock["runs"]["default"];
    assert_eq!(entry["flags"].as_object_mut().unwrap().remove("like"), Some("native".into()));
    fs::write(&file, lock.to_string()).unwrap();
    let found = json(&check);
    assert_eq!((&found["verdict"], &found["runs"][0]["now"]["settings"]["like"]), (&"same".into(), &"native".into()));
    said(&check, &found["runs"][0]["warnings"], "run default was made under --like native");
    lock["runs"]["default"]["settings"].as_object_mut().unwrap().remove("like");
    fs::write(&file, lock.to_string()).unwrap();
    let found = json(&check);
    assert_eq!(found["verdict"], "same");
    said(&check, &found["runs"][0]["warnings"], "run default names no memory profile");
    let typed = run(&[&check[..], &["--like", "torch-2.11-sm90"]].concat());
    assert_eq!(typed.code, Some(1), "PyTorch's workspaces are more: {}", typed.stderr);
    // A new lock file uses PyTorch's profile.
    json(&[&check[..], &net].concat());
    let found = json(&check);
    assert_eq!(found["runs"][0]["now"]["settings"]["like"], "torch-2.11-sm90");
    assert_eq!(found["runs"][0]["warnings"], serde_json::json!([]));
}

#[cfg(feature = "cpu")]
#[test]
fn a_scan_goes_on_under_the_profile_that_it_began_with() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scan.json").display().to_string();
    let mut first = json(&on_cpu(&["1", "--like", "native", "-L", "batch", "8,16"]));
    for without in [false, true] {
        if without {
            for result in first["results"].as_array_mut().unwrap() {
                result["run"]["settings"].as_object_mut().unwrap().remove("like");
            }
        }
        fs::write(&file, first.to_string()).unwrap();
        let words = on_cpu(&["1", "-L", "batch", "8,16,32", "--continue", &file]);
        let scan = json(&words);
        let results = scan["results"].as_array().unwrap();
        for (result, before) in results.iter().zip(first["results"].as_array().unwrap()) {
            assert_eq!(result["run"]["ms_per_step"], before["run"]["ms_per_step"], "it was not run again");
        }
        assert!(results.iter().all(|result| result["run"]["settings"]["like"] == "native"), "{scan}");
        said(&words, &scan["notes"], "the scan that goes on was made under --like native");
    }
    let typed = json(&on_cpu(&["1", "-L", "batch", "8", "--continue", &file, "--like", "torch-2.11-sm90"]));
    assert_eq!(typed["results"][0]["run"]["settings"]["like"], "torch-2.11-sm90");
    assert_eq!(typed["notes"], serde_json::json!([]));
}

#[cfg(feature = "cpu")]
#[test]
fn a_saved_state_goes_on_under_the_profile_that_it_was_made_under() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state.safetensors").display().to_string();
    let resumed = on_cpu(&["8", "--resume", &file]);
    json(&on_cpu(&["8", "--save", &file]));
    let plain = json(&resumed);
    assert_eq!((&plain["settings"]["like"], &plain["warnings"]), (&"torch-2.11-sm90".into(), &serde_json::json!([])));
    json(&on_cpu(&["8", "--like", "native", "--save", &file]));
    let found = json(&resumed);
    assert_eq!(found["settings"]["like"], "native");
    said(&resumed, &found["warnings"], "state.safetensors was made under --like native");
    // Files of earlier releases did not have this key: another key of the same length replaces it.
    let bytes = fs::read(&file).unwrap();
    let at = bytes.windows(9).position(|window| window == b"\"profile\"").unwrap();
    fs::write(&file, [&bytes[..at], b"\"another\"", &bytes[at + 9..]].concat()).unwrap();
    let found = json(&resumed);
    assert_eq!(found["settings"]["like"], "native");
    said(&resumed, &found["warnings"], "state.safetensors names no memory profile");
    let typed = json(&[&resumed[..], &["--like", "torch-2.15-sm80"]].concat());
    assert_eq!((&typed["settings"]["like"], &typed["losses"]), (&"torch-2.15-sm80".into(), &found["losses"]));
}
