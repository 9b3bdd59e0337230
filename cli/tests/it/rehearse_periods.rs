//! Lines of a script that run only every so many steps: a rehearsal sees a whole period, or says that it did not.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::rehearsal::{FOLDER, Rehearsed, command};

const PERIODS: &str = "periods.py";

fn rehearse(flags: &[&str], words: &[&str]) -> Rehearsed {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(Path::new(FOLDER).join(PERIODS), folder.path().join(PERIODS)).unwrap();
    let mut command = command(folder.path(), flags);
    let output = command.args(["--gpu", "1GiB", "--", "python3", PERIODS]).args(words).output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(!stderr.contains("panicked"), "{stderr}");
    Rehearsed { code: output.status.code(), stdout, stderr, folder }
}

fn growth(ran: &Rehearsed) -> Value {
    let found = ran.json();
    assert!(
        found["problems"].as_array().unwrap().iter().all(|problem| !problem.to_string().contains("failed inside")),
        "{found}"
    );
    found["ranks"][0]["growth"].clone()
}

#[test]
fn what_every_third_or_tenth_step_keeps_is_a_leak() {
    for every in [3, 10] {
        let ran = rehearse(&[], &["keep", "--log-every", &every.to_string()]);
        let growth = growth(&ran);
        assert_eq!((ran.code, &growth["trend"]), (Some(1), &"leak".into()), "{growth} {}", ran.stderr);
        // Four periods, and until a step repeats the one before it.
        let steps = growth["steps"].as_i64().unwrap() - 4 * i64::from(every);
        assert!((2..6).contains(&steps) && growth["seldom"] == serde_json::json!([]), "{growth}");
        // 3 MiB every third or tenth step.
        let per_step = growth["bytes_per_step"].as_f64().unwrap();
        assert!((per_step * f64::from(every) / f64::from(3 << 20) - 1.0).abs() < 0.02, "{growth}");
        assert_eq!(growth["lines"][0]["holder"], "list kept", "{growth}");
        assert!(growth["full_at_step"].as_u64().unwrap() > 900, "{growth}");
        assert!(ran.stdout.starts_with("Leaks: "), "{}", ran.stdout);
    }
}

#[test]
fn what_a_turn_keeps_is_a_leak_where_no_remainder_says_how_many_steps_it_has() {
    // Every third turn of one loop, and each turn of a loop around three steps.
    for what in ["turns", "epochs"] {
        let ran = rehearse(&[], &[what]);
        let growth = growth(&ran);
        assert_eq!((ran.code, &growth["trend"]), (Some(1), &"leak".into()), "{what}: {growth} {}", ran.stderr);
        let per_step = growth["bytes_per_step"].as_f64().unwrap();
        assert!((per_step / f64::from(1 << 20) - 1.0).abs() < 0.2, "{what}: {growth}");
        assert_eq!(growth["lines"][0]["holder"], "list kept", "{what}: {growth}");
        assert!(ran.stdout.starts_with("Leaks: "), "{}", ran.stdout);
    }
}

#[test]
fn what_is_let_go_changes_no_verdict_once_a_period_was_seen() {
    for (words, every) in [(&["let-go", "--log-every", "10"][..], 10), (&["let-go", "--log-every=4"], 4)] {
        let ran = rehearse(&[], words);
        let growth = growth(&ran);
        assert_eq!((ran.code, &growth["trend"]), (Some(0), &"flat".into()), "{growth}");
        let steps = growth["steps"].as_i64().unwrap() - every;
        assert!((2..6).contains(&steps), "{growth}");
        assert_eq!(growth["seldom"], serde_json::json!([]), "{growth}");
    }
    // What is kept now and then, and never again, is not what the line of the period keeps.
    let ran = rehearse(&[], &["cache", "--log-every", "5"]);
    let growth = growth(&ran);
    assert_eq!(ran.code, Some(0), "{growth} {}", ran.stdout);
}

#[test]
fn a_line_that_was_not_seen_is_named_and_the_answer_is_the_same() {
    let ran = rehearse(&[], &["keep"]);
    let growth = growth(&ran);
    // Another loop of the script has turns of three steps: these are waited for, and two steps.
    assert_eq!((ran.code, &growth["trend"], &growth["steps"]), (Some(0), &"flat".into(), &5.into()), "{growth}");
    let line = &growth["seldom"][0];
    assert_eq!((&line["every"], &line["of"], &line["loop_at"]), (&100.into(), &"step".into(), &Value::Null), "{line}");
    assert_eq!(line["where"], "periods.py:36");
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.starts_with("Yes: ")
            && said.contains("periods.py:36 runs every 100 steps: 5 steps do not show what it keeps."),
        "{said}"
    );
    // With as many steps it is seen, and so it is by a script that ends by itself.
    let seen = rehearse(&["--steps", "120"], &["let-go"]);
    assert_eq!((seen.code, &super::rehearse_periods::growth(&seen)["seldom"]), (Some(0), &serde_json::json!([])));
    let ended = rehearse(&[], &["let-go", "--steps", "2"]);
    assert_eq!((ended.code, &super::rehearse_periods::growth(&ended)["seldom"]), (Some(0), &serde_json::json!([])));
}
