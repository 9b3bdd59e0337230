//! `vramlab rehearse --phases`: each phase of a script with its own peak, with the stand-in for PyTorch.
#![cfg(target_os = "linux")]

use serde_json::Value;

use crate::common::rehearsal::rehearse;

/// The phases of an answer: name, MiB allocated at most, and whether it fits.
fn phases(found: &Value) -> Vec<(&str, u64, &Value)> {
    let phases = found["phases"].as_array().unwrap();
    let told = |phase: &Value| (phase["peak_allocated"].as_u64().unwrap() >> 20, phase["fits"].clone());
    assert!(phases.iter().all(|phase| told(phase).0 <= phase["peak_reserved"].as_u64().unwrap() >> 20));
    phases.iter().map(|phase| (phase["name"].as_str().unwrap(), told(phase).0, &phase["fits"])).collect()
}

#[test]
fn each_phase_is_told_with_its_peak_and_its_line() {
    let words =
        ["steps=2", "passing=4194304", "steps=3", "evaluate", "passing=8388608", "train", "save=a", "resume=2097152"];
    let ran = rehearse(&["--phases", "--gpu", "rtx4090"], &words);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let found = ran.json();
    let yes = &Value::Bool(true);
    assert_eq!(
        phases(&found),
        [("load", 1, yes), ("train", 5, yes), ("evaluate", 9, yes), ("save", 1, yes), ("resume", 3, yes)]
    );
    assert_eq!(found["stopped"], "end", "it goes on although memory is flat");
    let place = found["phases"][2]["where"].as_str().unwrap();
    assert!(place.ends_with("script.py:23"), "{place}");
    assert_eq!(found["ranks"][0]["peak_allocated"], 9 << 20, "the verdict is that of the largest");
    assert!(ran.stdout.contains("Most is reserved to evaluate."), "{}", ran.stdout);
}

#[test]
fn the_phase_that_does_not_fit_is_named() {
    let ran = rehearse(&["--phases", "--gpu", "8MiB"], &["steps=3", "evaluate", "passing=67108864"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    let found = ran.json();
    let (yes, no) = (&Value::Bool(true), &Value::Bool(false));
    assert_eq!(phases(&found), [("load", 1, yes), ("train", 1, yes), ("evaluate", 65, no)]);
    assert!(ran.stdout.contains("Memory is enough to load, train, and not to evaluate."), "{}", ran.stdout);
}

#[test]
fn without_a_wish_there_are_no_phases() {
    let found = rehearse(&[], &["steps=5"]).json();
    assert_eq!((&found["phases"], &found["stopped"]), (&serde_json::json!([]), &"steps".into()));
}
