//! What a rehearsal says is true: growth, exactness, what is drawn, and what is said before the first step.
#![cfg(target_os = "linux")]

use std::fs;

use crate::common;
use crate::common::rehearsal::{SCRIPT, command, rehearse, unknown_at_the_peak};
use serde_json::Value;

#[test]
fn the_page_knows_what_the_text_knows() {
    for words in [&["steps=2", "allocate=4000000", "lengths=5"][..], &["leak=9"]] {
        let ran = rehearse(&["--events", "events.json"], words);
        let events: Value = serde_json::from_str(&fs::read_to_string(ran.file("events.json")).unwrap()).unwrap();
        let other = &ran.json()["ranks"][0]["by_category"]["other"];
        assert_eq!(other, unknown_at_the_peak(&events), "{words:?}: {other}");
    }
}

#[test]
fn the_dashes_before_the_command_may_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &["--gpu", "rtx4090"]);
    let output = command.arg("python3").arg(SCRIPT).args(["steps=3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // A flag that is not known is not a command.
    assert!(common::refused(2, &["rehearse", "--no-such-flag", "python3"]).contains("--no-such-flag"));
    fs::write(folder.path().join("train.py"), "").unwrap();
    let output = common::vramlab().current_dir(folder.path()).args(["rehearse", "train.py"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("python train.py"), "{output:?}");
}

#[test]
fn a_python_without_pytorch_is_named_and_a_command_with_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let site = folder.path().join(".venv/lib/python3.11/site-packages");
    fs::create_dir_all(folder.path().join(".venv/bin")).unwrap();
    fs::write(at(".venv/bin/python"), "").unwrap();
    fs::write(at(".venv/pyvenv.cfg"), "").unwrap();
    fs::write(at("train.py"), "import torch").unwrap();
    let run = |words: &[&str]| {
        let mut command = common::vramlab();
        command
            .current_dir(folder.path())
            .env_remove("PYTHONPATH")
            .env_remove("VIRTUAL_ENV")
            .env_remove("CONDA_PREFIX");
        // Packages of this machine are none of the test's.
        command.env("PATH", "/usr/bin:/bin").env("HOME", folder.path()).env("PYTHONNOUSERSITE", "1");
        let output = command.args(["rehearse", "--gpu", "rtx4090", "--"]).args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(&["/bin/sh", "-c", "exec python3 -s train.py"]);
    if text.contains("python3: not found") || !text.contains("No module named 'torch'") {
        eprintln!("not tested: {text}");
        return;
    }
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("python3 has no PyTorch, and no other Python was found that has"), "{text}");
    assert!(
        text.contains(".venv/bin/python -m pip install torch && PATH=$PWD/.venv/bin:$PATH vramlab rehearse"),
        "{text}"
    );
    assert!(!text.contains("no Python of the command"), "{text}");
    fs::create_dir_all(site.join("torch-2.11.0.dist-info")).unwrap();
    let (_, text) = run(&["python3", "train.py", "--lr", "1"]);
    let python = folder.path().canonicalize().unwrap().join(".venv/bin/python").display().to_string();
    let works = format!("{python} has: vramlab rehearse --gpu rtx4090 -- {python} train.py --lr 1");
    assert!(text.contains(&works), "{works}: {text}");
}

#[test]
fn before_the_first_step_it_says_what_happens() {
    let ran = rehearse(&[], &["sleep=2", "steps=3"]);
    assert!(ran.stderr.contains("PyTorch is there: step 1 is next"), "{}", ran.stderr);
}

#[test]
fn a_tool_of_the_driver_answers_like_the_card() {
    let ran = rehearse(&["--gpu", "rtx4090"], &["smi", "steps=3"]);
    assert!(ran.stderr.contains("NVIDIA GeForce RTX 4090, 24084"), "{}", ran.stderr);
}

#[test]
fn the_scripts_traceback_is_its_own() {
    let ran = rehearse(&[], &["steps=1", "raise"]);
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.stderr.contains("in save") && ran.stderr.contains("Traceback") && !ran.stderr.contains("<vramlab>"),
        "{}",
        ran.stderr
    );
    // Nor has what a logger or a thread prints frames of the rehearsal.
    let ran = rehearse(&[], &["steps=1", "raise-caught", "steps=2"]);
    let shown = (ran.stderr.matches("Traceback").count(), ran.stderr.matches("in fail").count());
    assert!(shown == (2, 2) && !ran.stderr.contains("<vramlab>"), "{}", ran.stderr);
}

#[test]
fn a_leak_is_told_with_its_line_its_holder_and_the_step_that_fills_the_card() {
    let ran = rehearse(&["--gpu", "1GiB"], &["steps=1", "leak=100"]);
    let found = ran.json();
    assert_eq!(
        (ran.code, &found["fits"], &found["stopped"]),
        (Some(1), &Value::Null, &"steps".into()),
        "{}",
        ran.stderr
    );
    let growth = &found["ranks"][0]["growth"];
    assert_eq!((&growth["trend"], &growth["steps"]), (&"leak".into(), &20.into()), "{growth}");
    // A parameter of 1 MiB, and 3 MiB a step: 341 of these fit into 1 GiB, and the first step made none.
    assert_eq!((&growth["bytes_per_step"], &growth["full_at_step"]), (&(3 << 20).into(), &343.into()), "{growth}");
    let line = &growth["lines"][0];
    assert_eq!((&line["holder"], &line["kind"]), (&"list kept".into(), &"leak".into()), "{line}");
    for key in ["where", "held_at"] {
        assert!(line[key].as_str().unwrap().contains("script.py:"), "{line}");
    }
    assert!(ran.stdout.starts_with("Leaks: ") && ran.stdout.contains("held by list kept"), "{}", ran.stdout);
    common::fits(&ran.stdout);
    // What may fill is not a leak, and what differs from step to step does not grow.
    let filled = rehearse(&["--gpu", "1GiB"], &["fills=40"]);
    assert_eq!(
        (filled.code, &filled.json()["ranks"][0]["growth"]["trend"]),
        (Some(1), &"may_fill".into()),
        "{}",
        filled.stderr
    );
    assert!(filled.stdout.starts_with("Perhaps: ") && filled.stdout.contains("dict cache"), "{}", filled.stdout);
    let steady = rehearse(&[], &["lengths=40"]);
    assert_eq!(
        (steady.code, &steady.json()["ranks"][0]["growth"]["trend"]),
        (Some(0), &"bounded".into()),
        "{}",
        steady.stderr
    );
    // A number of steps that tells nothing promises nothing.
    let short = rehearse(&["--steps", "1"], &["steps=9"]);
    assert_eq!(
        (short.code, &short.json()["ranks"][0]["growth"]["trend"]),
        (Some(1), &"unseen".into()),
        "{}",
        short.stderr
    );
    assert!(short.stdout.starts_with("Perhaps: "), "{}", short.stdout);
}

#[test]
fn a_run_that_failed_is_never_exact_and_proposes_nothing() {
    let ran = rehearse(&[], &["steps=3", "exit=7"]);
    assert_eq!(ran.json()["exact"], true, "it ended with its steps");
    let ran = rehearse(&["--steps", "9"], &["steps=2", "exit=7"]);
    let found = ran.json();
    assert_eq!((&found["exact"], &found["what_if"]), (&false.into(), &Value::Null), "{found}");
    assert!(!ran.stdout.contains("xact") && !ran.stdout.contains("Try"), "{}", ran.stdout);
}

#[test]
fn a_script_that_catches_the_error_and_fails_for_another_reason_does_not_say_no() {
    let ran = rehearse(&[], &["steps=1", "full-caught", "steps=1", "raise"]);
    assert_eq!((ran.code, &ran.json()["fits"]), (Some(3), &Value::Null), "{}", ran.stdout);
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("is not known: the script failed with"), "{said}");
    assert!(said.contains("Memory had run out before: in step 2, "), "{said}");
    let ran = rehearse(&[], &["full-caught", "steps=2", "exit=4"]);
    assert_eq!((ran.code, &ran.json()["fits"]), (Some(3), &Value::Null), "it went on: {}", ran.stdout);
    // What is raised because of it, and an exit code right after it, are its own.
    for words in
        [&["steps=1", "full-then-raise"][..], &["full-caught", "exit=4"], &["steps=2", "full-caught", "exit=255"]]
    {
        let ran = rehearse(&["--no-needs"], words);
        assert_eq!((ran.code, &ran.json()["fits"]), (Some(1), &false.into()), "{words:?}: {}", ran.stdout);
    }
}
