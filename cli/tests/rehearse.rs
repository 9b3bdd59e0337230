//! `vramlab rehearse` on scripts with a stand-in for PyTorch: what the launcher and its part inside the script do, however
//! the script ends. With `VRAMLAB_REHEARSAL_PYTHON` also on the PyTorch of that Python.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rehearse");

/// What came of a rehearsal in a folder of its own.
struct Rehearsed {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    folder: TempDir,
}

impl Rehearsed {
    fn json(&self) -> Value {
        let text = fs::read_to_string(self.folder.path().join("answer.json"));
        let text = text.unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr));
        serde_json::from_str(&text).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The library lies beside the program where cargo builds the whole workspace; else it is named.
fn command(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.current_dir(folder).env_remove("NO_COLOR").env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["rehearse", "--no-values", "--json", "answer.json"]).args(flags);
    command
}

fn rehearse(flags: &[&str], words: &[&str]) -> Rehearsed {
    rehearse_in(tempfile::tempdir().unwrap(), flags, words)
}

fn rehearse_in(folder: TempDir, flags: &[&str], words: &[&str]) -> Rehearsed {
    let mut command = command(folder.path(), flags);
    let output = command.args(["--", "python3"]).arg(Path::new(FOLDER).join("script.py")).args(words).output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(!stderr.contains("panicked"), "{stderr}");
    Rehearsed { code: output.status.code(), stdout, stderr, folder }
}

#[test]
fn it_ends_after_three_steps_and_says_what_was_taken() {
    let ran = rehearse(&["--gpu", "rtx4090"], &["steps=1", "allocate=1000000", "steps=5", "exit=7"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let found = ran.json();
    assert_eq!(found["schema"], "vramlab-rehearsal-1");
    assert_eq!((&found["fits"], &found["stopped"]), (&true.into(), &"steps".into()));
    assert_eq!(found["gpu"]["name"], "NVIDIA GeForce RTX 4090");
    assert_eq!(found["torch"], "0.0+stand-in");
    let rank = &found["ranks"][0];
    assert_eq!((&rank["steps"], &rank["peak_allocated"]), (&3.into(), &2_048_576.into()));
    assert_eq!(rank["by_category"]["parameter"], 1_048_576);
    assert_eq!(rank["at_peak"][0]["category"], "parameter");
    assert!(rank["at_peak"][0]["where"].as_str().unwrap().ends_with("script.py:12"), "{rank}");
    assert!(ran.stdout.contains("Fits on NVIDIA GeForce RTX 4090: 3 steps take"), "{}", ran.stdout);
    assert!(ran.stderr.contains("step 3 of 3: "), "{}", ran.stderr);
    common::fits(&ran.stdout);
    assert!(found["not_reached"].as_array().unwrap().contains(&"evaluation".into()));
}

#[test]
fn a_script_that_ends_by_itself_reached_everything() {
    let ran = rehearse(&[], &["evaluate", "steps=2", "save=weights.pt"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["stopped"], &found["script_exit"]), (Some(0), &"end".into(), &0.into()));
    assert_eq!(found["not_reached"], serde_json::json!([]));
    assert_eq!(found["withheld"], serde_json::json!(["weights.pt"]));
    assert!(!ran.file("weights.pt").exists(), "it was withheld");
}

#[test]
fn what_the_script_writes_is_kept_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weights.pt"), "before").unwrap();
    let kept = folder.path().join("kept");
    let ran = rehearse_in(folder, &["--keep-outputs", kept.to_str().unwrap()], &["save=weights.pt", "steps=1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(ran.file("weights.pt")).unwrap(), "before");
    assert!(fs::metadata(kept.join("weights.pt")).unwrap().len() > 10);
    let again = rehearse_in(ran.folder, &["--keep-outputs", kept.to_str().unwrap()], &[]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    assert!(again.stderr.contains("--keep-outputs") && again.stderr.contains("is not empty"), "{}", again.stderr);
}

#[test]
fn the_end_may_wait_for_what_is_to_be_seen() {
    let ran = rehearse(&["--until-seen", "eval,save"], &["steps=5", "evaluate", "save=a", "steps=9", "exit=7"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["stopped"]), (Some(0), &"seen".into()));
    assert_eq!(found["ranks"][0]["steps"], 6);
    assert_eq!(found["not_reached"], serde_json::json!(["generation", "batches of other shapes"]));
}

#[test]
fn running_out_of_memory_is_the_answer() {
    let ran = rehearse(&[], &["steps=1", "allocate=5000", "full"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["fits"]), (Some(1), &false.into()), "{}", ran.stderr);
    assert_eq!(found["ranks"][0]["oom"]["requested"], 8);
    assert!(ran.stdout.contains("Does not fit on") && ran.stdout.contains("in step 2"), "{}", ran.stdout);
    // A script that looks for its batch goes on.
    let ran = rehearse(&[], &["full-caught", "steps=4"]);
    assert_eq!((ran.code, &ran.json()["fits"]), (Some(0), &true.into()), "{}", ran.stderr);
}

#[test]
fn peaks_that_the_script_resets_count() {
    let found = rehearse(&[], &["allocate=5000000", "forget", "reset", "steps=3"]).json();
    assert_eq!(found["ranks"][0]["peak_allocated"], 6_048_576);
}

#[test]
fn a_script_that_fails_is_not_an_answer() {
    let ran = rehearse(&[], &["steps=1", "exit=7"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["fits"], &found["script_exit"]), (Some(3), &Value::Null, &7.into()));
    let ran = rehearse(&[], &["steps=2", "kill"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["script_exit"]), (Some(3), &137.into()), "{}", ran.stderr);
    assert_eq!(found["ranks"][0]["steps"], 2, "what was written before the crash counts");
    assert!(ran.stderr.contains("without a last word"), "{}", ran.stderr);
}

#[test]
fn a_script_that_hangs_is_ended_in_time() {
    let start = Instant::now();
    let ran = rehearse(&["--seconds", "2"], &["steps=1", "sleep=600"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["stopped"], &found["fits"]), (Some(0), &"time".into(), &true.into()));
    assert_eq!(found["script_exit"], Value::Null);
    let ran = rehearse(&["--seconds", "2"], &["sleep=600"]);
    assert_eq!((ran.code, &ran.json()["fits"]), (Some(3), &Value::Null), "{}", ran.stdout);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn an_interruption_keeps_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &[]);
    command.args(["--", "python3"]).arg(Path::new(FOLDER).join("script.py")).args(["steps=2", "sleep=600"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let found: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("answer.json")).unwrap()).unwrap();
    assert_eq!((&found["stopped"], &found["ranks"][0]["steps"]), (&"interrupted".into(), &2.into()));
}

#[test]
fn much_output_and_a_fork_lose_nothing() {
    let ran = rehearse(&["-q", "--snapshot", "run.pickle"], &["print=20000", "fork", "steps=3"]);
    let found = ran.json();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let ranks = found["ranks"].as_array().unwrap();
    assert!(ranks.iter().any(|rank| rank["steps"] == 3 && rank["peak_allocated"] == 1 << 20), "{ranks:?}");
    assert!(fs::metadata(ran.file("run.pickle")).is_ok() || fs::metadata(ran.file("run.pickle.0")).is_ok());
}

#[test]
fn a_crash_loses_nothing_of_the_steps_before_it() {
    let ran = rehearse(&[], &["steps=1", "allocate=5000000", "steps=1", "crash"]);
    let found = ran.json();
    assert_eq!(
        (ran.code, &found["script_exit"], &found["fits"]),
        (Some(3), &139.into(), &Value::Null),
        "{}",
        ran.stderr
    );
    let rank = &found["ranks"][0];
    assert_eq!((&rank["steps"], &rank["peak_allocated"]), (&2.into(), &6_048_576.into()));
    assert!(ran.stderr.contains("without a last word, after step 2"), "{}", ran.stderr);
}

#[test]
fn no_process_outlives_its_rehearsal() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let flags = ["--keep-outputs", kept.to_str().unwrap()];
    for words in [&["outlive=pid", "steps=3"][..], &["outlive=pid", "steps=1", "exit=7"]] {
        let ran = rehearse(&flags, words);
        assert_eq!(ran.json()["ranks"][0]["steps"], if words.len() == 2 { 3 } else { 1 }, "{}", ran.stderr);
        let pid = fs::read_to_string(kept.join("pid")).unwrap();
        // Its number may stay for a moment, until the system's first process has asked how it ended.
        let state = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "process {pid} still runs: {state}");
        fs::remove_dir_all(&kept).unwrap();
    }
}

#[test]
fn what_a_script_prints_is_passed_on_and_kept_nowhere() {
    // 200 MB in lines; the program that passes them on may not grow by them.
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &[]);
    command.args(["--", "python3"]).arg(Path::new(FOLDER).join("script.py")).args([
        "print=200000",
        "steps=3",
        "sleep=3",
    ]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (mut printed, mut most_kib, mut text) = (0, 0, vec![0; 1 << 16]);
    while let Ok(count @ 1..) = child.stderr.as_mut().unwrap().read(&mut text) {
        printed += count;
        let most = fs::read_to_string(&status).unwrap_or_default();
        let kib = most.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        most_kib = most_kib.max(kib.unwrap_or(0_u64));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(printed > 200_000_000, "{printed}");
    assert!(most_kib > 0 && most_kib < 100_000, "{most_kib} KiB");
}

#[test]
fn what_the_script_writes_among_the_answers_is_only_read() {
    let ran = rehearse(&[], &["garbage", "steps=3"]);
    assert!(matches!(ran.code, Some(0)), "{}", ran.stderr);
    assert!(!ran.file("executed").exists(), "a pickle is read, not run");
    assert!(ran.stderr.contains("cannot be read"), "{}", ran.stderr);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stdout.contains('\u{7}'), "{:?}", ran.stdout);
}

#[test]
fn the_users_own_start_still_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sitecustomize.py"), "import os\nos.environ['USERS_OWN'] = 'ran'\n").unwrap();
    let path = format!("{FOLDER}:{}", folder.path().display());
    let mut command = command(folder.path(), &[]);
    command.env("PYTHONPATH", path).args(["--", "python3"]).arg(Path::new(FOLDER).join("script.py"));
    let output = command.args(["user", "steps=3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_rehearsed_is_refused() {
    let refused = |args: &[&str]| common::refused(2, &[&["rehearse"], args].concat());
    assert!(refused(&["--", "python3", "-I", "train.py"]).starts_with("python -I: "));
    assert!(refused(&["--", "no-such-program-anywhere"]).contains("cannot be started"));
    assert!(refused(&["--gpu", "rtx4091", "--", "python3"]).contains("rtx4090"));
    assert!(refused(&["--gpus", "17", "--", "python3"]).contains("16"));
    let mut command = common::vramlab();
    command.env("VRAMLAB_REHEARSAL_LIBRARY", "/no/such/library.so").args(["rehearse", "--", "true"]);
    command.assert().code(2);
}

#[test]
fn a_command_that_uses_no_card_is_told_so() {
    let ran = rehearse(&[], &["without-card", "steps=1"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("does the script choose device cuda"), "{}", ran.stderr);
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), &[]).args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("imported PyTorch"));
}

/// A training that saves, evaluates and loads, under a PyTorch with CUDA.
#[test]
fn a_training_under_pytorch_itself() {
    let Some(python) = std::env::var_os("VRAMLAB_REHEARSAL_PYTHON") else {
        eprintln!("skipped: VRAMLAB_REHEARSAL_PYTHON names no Python with PyTorch");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.pt"), "before").unwrap();
    // Beside the stand-in, that would be imported.
    fs::copy(Path::new(FOLDER).join("training.py"), folder.path().join("training.py")).unwrap();
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command
            .current_dir(folder.path())
            .args(["rehearse", "--json", "answer.json"])
            .args(flags)
            .arg("--")
            .arg(&python);
        let output = command.arg("training.py").output().unwrap();
        let text = fs::read_to_string(folder.path().join("answer.json")).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_str::<Value>(&text).unwrap(), errors)
    };
    let (code, found, errors) = run(&["--gpu", "rtx4090", "--steps", "100"]);
    assert_eq!((code, &found["fits"], &found["stopped"]), (Some(0), &true.into(), &"end".into()), "{errors}");
    let rank = &found["ranks"][0];
    // Two layers of 1024 x 1024 and 1024 x 10 with their biases, in single precision.
    assert_eq!(rank["by_category"]["parameter"], 4 * (1024 * 1024 + 1024 + 1024 * 10 + 10), "{rank}");
    // At the peak, in the backward pass, not all gradients need be there yet.
    let [gradient, parameter] = ["gradient", "parameter"].map(|kind| rank["by_category"][kind].as_u64().unwrap());
    assert!(gradient <= parameter && gradient > parameter / 2, "{rank}");
    assert_eq!(found["withheld"], serde_json::json!(["model.pt"]));
    assert_eq!(fs::read_to_string(folder.path().join("model.pt")).unwrap(), "before");
    let (code, found, errors) = run(&["--gpu", "16MiB"]);
    assert_eq!((code, &found["fits"]), (Some(1), &false.into()), "{errors}");
}
