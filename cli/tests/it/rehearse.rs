//! `vramlab rehearse` on scripts with a stand-in for PyTorch: the launcher and its part inside the script, for all
//! ways to end. With `VRAMLAB_REHEARSAL_PYTHON` also with the PyTorch of that Python.
#![cfg(target_os = "linux")]

use crate::common;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::rehearsal::{FOLDER, SCRIPT, command, rehearse, rehearse_in, unknown_at_the_peak};
use serde_json::Value;

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
    // The second step allocates; the fourth is the first that repeats the one before it.
    assert_eq!((&rank["steps"], &rank["peak_allocated"]), (&4.into(), &2_048_576.into()));
    assert_eq!(rank["growth"]["trend"], "flat");
    assert_eq!(rank["by_category"]["parameter"], 1_048_576);
    assert_eq!(rank["at_peak"][0]["category"], "parameter");
    assert!(rank["at_peak"][0]["where"].as_str().unwrap().ends_with("script.py:12"), "{rank}");
    let first = ran.stdout.lines().take(2).collect::<String>();
    assert!(
        first.starts_with("Yes: ")
            && first.contains(" needed (")
            && first.split_whitespace().collect::<Vec<_>>().join(" ").contains("the NVIDIA GeForce RTX 4090 has"),
        "{first}"
    );
    assert!(ran.stdout.contains("4 steps use"), "{}", ran.stdout);
    assert!(ran.stderr.contains("step 4 of 20 at most: "), "{}", ran.stderr);
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
    assert_eq!(found["not_reached"], serde_json::json!(["batches of other shapes"]));
}

#[test]
fn running_out_of_memory_is_the_answer() {
    let ran = rehearse(&[], &["steps=1", "allocate=5000", "full"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["fits"]), (Some(1), &false.into()), "{}", ran.stderr);
    assert_eq!(found["ranks"][0]["oom"]["requested"], 8);
    assert_eq!(found["with_memory_enough"]["fits"], false, "nothing is enough for it");
    assert!(ran.stdout.contains("was too"), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("No: ") && ran.stdout.contains("Memory runs out in step 2"), "{}", ran.stdout);
    // A script that searches for its batch itself continues.
    let ran = rehearse(&[], &["full-caught", "steps=4"]);
    assert_eq!((ran.code, &ran.json()["fits"]), (Some(0), &true.into()), "{}", ran.stderr);
}

#[test]
fn what_does_not_fit_is_run_again_with_memory_enough() {
    let words = ["allocate=5000000", "need=2000000000", "steps=4"];
    let ran = rehearse(&["--gpu", "1GiB", "--events", "events.json"], &words);
    let found = ran.json();
    assert_eq!((ran.code, &found["fits"]), (Some(1), &false.into()), "{}", ran.stderr);
    let oom = &found["ranks"][0]["oom"];
    assert_eq!((&oom["requested"], &oom["verdict"]), (&2_000_000_000u64.into(), &"full".into()));
    assert_eq!(oom["free_on_device"], (1u64 << 30) - (1 << 20) - 5_000_000);
    let needs = &found["with_memory_enough"];
    let peak = 2_000_000_000 + 5_000_000 + (1 << 20);
    assert_eq!((&needs["fits"], &needs["steps"], &needs["peak_reserved"]), (&true.into(), &3.into(), &peak.into()));
    assert_eq!(needs["missing"], peak - (1u64 << 30));
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("The card is full") && said.contains("more than the card has"), "{said}");
    assert!(ran.stderr.contains("running it again on a card with enough memory"), "{}", ran.stderr);
    common::fits(&ran.stdout);
    let events: Value = serde_json::from_str(&fs::read_to_string(ran.file("events.json")).unwrap()).unwrap();
    // The run with enough memory: its categories are those of the answer.
    assert_eq!((&events["format"], &events["ev"]), (&"vramlab-events-1".into(), &"aaa".into()));
    assert_eq!(events["ev_size"], serde_json::json!([1 << 20, 5_000_000, 2_000_000_000]));
    assert_eq!(unknown_at_the_peak(&events), needs["by_category"]["other"].as_u64().unwrap());
    assert!(ran.stdout.contains("At the peak, with enough memory"), "{}", ran.stdout);
    // `--no-needs` skips the second run.
    let found = rehearse(&["--gpu", "1GiB", "--no-needs"], &words).json();
    assert_eq!((&found["fits"], &found["with_memory_enough"]), (&false.into(), &Value::Null));
}

#[test]
fn a_smaller_batch_is_rehearsed_before_it_is_proposed() {
    // A parameter of 1 MiB, and 10 MB for each of the batch, on 100 MiB: 24 and 12 do not fit, 6 does.
    let ran = rehearse(&["--gpu", "100MiB"], &["batch_size=24", "steps=3"]);
    let found = ran.json();
    assert_eq!((ran.code, &found["fits"]), (Some(1), &false.into()), "{}", ran.stderr);
    let entries = found["tries"]["entries"].as_array().unwrap();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((&entry["change"], &entry["checked"]), (&"batch_size=6 instead of 24".into(), &true.into()));
    let (peak, left) = (61_048_576_u64, (100_u64 << 20) - 61_048_576);
    assert_eq!((&entry["peak_bytes"], &entry["left_bytes"]), (&peak.into(), &left.into()));
    let command = entry["command"].as_str().unwrap();
    assert!(
        command.starts_with("vramlab predict --gpu 104857600B") && command.ends_with("batch_size=6 steps=3"),
        "{command}"
    );
    assert!(ran.stdout.contains("batch_size=12 does not fit either."), "{}", ran.stdout);
    let search = found["tries"]["search"].as_str().unwrap();
    assert!(search.contains("-L batch 6,12 -- ") && search.contains("batch_size={batch}"), "{search}");
    assert!(ran.stderr.contains("it does not fit surely: running it again with batch_size=12"), "{}", ran.stderr);
    // The path of the clone may take a line more.
    assert!(ran.stdout.lines().count() <= 26, "{}", ran.stdout);
    common::fits(&ran.stdout);
    // Without a known name for the batch, the answer explains how to find one that fits.
    let ran = rehearse(&["--gpu", "1GiB"], &["need=2000000000", "steps=3"]);
    assert!(
        ran.json()["tries"]["search"].as_str().unwrap().contains("Name it, as in `--batch-size N`"),
        "{}",
        ran.stdout
    );
    assert_eq!(
        rehearse(&["--gpu", "100MiB", "--no-needs"], &["batch_size=24", "steps=3"]).json()["tries"],
        Value::Null
    );
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
    assert!(ran.stderr.contains("without a final report"), "{}", ran.stderr);
}

#[test]
fn a_shell_that_ends_well_after_a_script_that_did_not_is_no_answer() {
    for ends in ["kill", "raise", "crash"] {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("python3 {SCRIPT} steps=2 {ends}; true");
        let output = command(folder.path(), &["--steps", "9", "--", "sh", "-c", &line]).output().unwrap();
        let found: Value =
            serde_json::from_str(&fs::read_to_string(folder.path().join("answer.json")).unwrap()).unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            (output.status.code(), &found["fits"], &found["exact"]),
            (Some(3), &Value::Null, &false.into()),
            "{text}"
        );
        assert!(text.starts_with("Not known: "), "{text}");
    }
    // What leaves at once has said everything before.
    let ran = rehearse(&["--steps", "9"], &["steps=3", "leave"]);
    assert_eq!((ran.code, &ran.json()["stopped"]), (Some(0), &"end".into()), "{}", ran.stderr);
}

#[test]
fn a_script_that_hangs_is_ended_in_time() {
    let start = Instant::now();
    let ran = rehearse(&["--seconds", "2"], &["steps=1", "sleep=600"]);
    let found = ran.json();
    // One step does not tell whether memory grows.
    assert_eq!((ran.code, &found["stopped"], &found["fits"]), (Some(1), &"time".into(), &Value::Null));
    assert_eq!(found["script_exit"], Value::Null);
    let ran = rehearse(&["--seconds", "2"], &["sleep=600"]);
    assert_eq!((ran.code, &ran.json()["fits"]), (Some(3), &Value::Null), "{}", ran.stdout);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn an_interruption_keeps_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &[]);
    command.args(["--", "python3"]).arg(SCRIPT).args(["steps=2", "sleep=600"]);
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
    assert!(ran.stderr.contains("without a final report, after step 2"), "{}", ran.stderr);
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
        // The process id may remain for a moment, until init has collected the exit status.
        let state = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "process {pid} still runs: {state}");
        fs::remove_dir_all(&kept).unwrap();
    }
}

#[test]
fn what_a_script_prints_is_passed_on_and_kept_nowhere() {
    // 200 MB of lines; the program forwards them without storing them.
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &[]);
    command.args(["--", "python3"]).arg(SCRIPT).args(["print=200000", "steps=3", "sleep=3"]);
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
fn a_line_that_a_script_writes_in_parts_stays_whole_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output");
    let output = fs::File::create(&path).unwrap();
    let mut command = command(folder.path(), &[]);
    command.args(["--", "python3"]).arg(SCRIPT).args([
        "steps=1",
        "part=colour",
        "sleep=1",
        "part=less",
        "steps=5",
        "sleep=1",
    ]);
    let status = command.stdout(output.try_clone().unwrap()).stderr(output).status().unwrap();
    let text = fs::read_to_string(path).unwrap();
    assert!(status.success() && text.contains("colourless\nYes: "), "{text}");
}

/// Scripts ask how wide the terminal of their input is (`stty size`); what would wait for a line reads none.
#[test]
fn a_script_in_a_terminal_has_its_size_and_no_input() {
    let folder = tempfile::tempdir().unwrap();
    let inside = command(folder.path(), &[]);
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut outside = Command::new("python3");
    outside.current_dir(folder.path()).args(["-c", spawn]).arg(inside.get_program()).args(inside.get_args());
    let variables = inside.get_envs().filter_map(|(name, value)| Some((name, value?)));
    outside.envs(variables).args(["--", "python3", SCRIPT, "terminal", "steps=8"]);
    let output = outside.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("columns: ") && text.contains("nothing to read"), "{text}");
}

/// A script that writes a line in two parts, with a second between them in which a step is told, and that does not end this line.
const IN_PARTS: [&str; 5] = ["steps=1", "part=colour", "sleep=1", "part=less", "steps=5"];

#[test]
fn a_line_that_a_script_writes_in_parts_stays_whole_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let own = command(folder.path(), &[]);
    let mut together = Command::new("sh");
    together.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(own.get_program()).args(own.get_args());
    together.current_dir(folder.path()).envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = together.args(["--", "python3"]).arg(SCRIPT).args(IN_PARTS).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("colourless\nYes: "), "{text}");
}

#[test]
fn a_line_that_a_script_writes_in_parts_stays_whole_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let own = command(folder.path(), &[]);
    let mut terminal = Command::new("python3");
    terminal
        .args(["-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"])
        .arg(own.get_program())
        .args(own.get_args());
    terminal.current_dir(folder.path()).stdin(Stdio::null());
    terminal.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = terminal.args(["--", "python3"]).arg(SCRIPT).args(IN_PARTS).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("colourless"), "{text}");
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
    command.env("PYTHONPATH", path).args(["--", "python3"]).arg(SCRIPT);
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

/// Four at once, because the keeper once collected such a command's process before the thread that had started it, which then never
/// answered: one run in twenty hung.
#[test]
fn a_command_that_cannot_be_started_ends_every_time() {
    let many = || {
        for _ in 0..15 {
            let mut command = common::vramlab();
            command.timeout(std::time::Duration::from_secs(120)).args(["rehearse", "--", "no-such-program-anywhere"]);
            command.assert().code(2);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(many))));
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

/// In a complete training the report's figures match the sizes of the network's tensors.
#[test]
fn what_memory_was_for_under_pytorch_itself() {
    let Some(python) = std::env::var_os("VRAMLAB_REHEARSAL_PYTHON") else {
        eprintln!("skipped: VRAMLAB_REHEARSAL_PYTHON names no Python with PyTorch");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::copy(Path::new(FOLDER).join("roles.py"), folder.path().join("roles.py")).unwrap();
    let run = |flags: &[&str], words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.current_dir(folder.path()).args(["rehearse", "--json", "answer.json"]).args(flags).arg("--");
        let output = command.arg(&python).arg("roles.py").args(words).output().unwrap();
        let text = fs::read_to_string(folder.path().join("answer.json")).unwrap();
        (serde_json::from_str::<Value>(&text).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Eight layers of 512 x 512 on 4096 rows; each keeps its input, and each tanh its output, which is the next one's
    // input. The last output is held by the script as well: when the backward pass is over, it is still there.
    let (weights, rows) = (8u64 * 512 * 512 * 4, 4096u64 * 512 * 4);
    for words in [&["optimizer"][..], &["by-hand"]] {
        let (found, errors) = run(&["--seconds", "60"], words);
        let by = &found["ranks"][0]["by_category"];
        assert_eq!(by["parameter"], weights, "{words:?} {found} {errors}");
        assert_eq!(by["input"], rows, "{words:?} {found}");
        assert_eq!(by["activation"], 7 * rows, "{words:?} {found}");
        assert_eq!(by["optimizer"], if words[0] == "optimizer" { weights } else { 0 }, "{words:?} {found}");
    }
    // The failure is in the first forward pass, when nothing has been freed. The run with enough memory shows what the memory was for.
    let (found, errors) = run(&["--gpu", "100MiB"], &["optimizer"]);
    assert_eq!(found["fits"], false, "{errors}");
    let by = &found["ranks"][0]["by_category"];
    assert_eq!((&by["parameter"], &by["input"]), (&weights.into(), &rows.into()), "{found}");
    assert!(by["activation"].as_u64() >= Some(rows), "{found}");
    assert!(found["with_memory_enough"]["missing"].as_u64() > Some(0), "{found}");
}

/// A training that saves, evaluates and loads, with a PyTorch built for CUDA.
#[test]
fn a_training_under_pytorch_itself() {
    let Some(python) = std::env::var_os("VRAMLAB_REHEARSAL_PYTHON") else {
        eprintln!("skipped: VRAMLAB_REHEARSAL_PYTHON names no Python with PyTorch");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.pt"), "before").unwrap();
    // In the folder of the stand-in, the stand-in would be imported.
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
    assert_eq!(rank["by_category"]["optimizer"], 2 * parameter, "{rank}");
    assert_eq!(found["what_if"]["self_check"]["exact"], true, "{}", found["what_if"]);
    let (code, found, errors) = run(&["--gpu", "16MiB"]);
    assert_eq!((code, &found["fits"]), (Some(1), &false.into()), "{errors}");
    assert_eq!(found["with_memory_enough"]["fits"], true, "{found}");
    let by = &found["with_memory_enough"]["by_category"];
    assert!(by["input"].as_u64() == Some(0) && by["parameter"] == parameter, "{by}");
}
