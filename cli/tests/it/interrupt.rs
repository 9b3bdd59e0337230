//! Ctrl-C ends a run. The results until then are kept.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the run has begun, presses Ctrl-C, and waits for the end. Returns the exit code, stdout, and the rest of stderr.
fn interrupted(mut child: Child) -> (Option<i32>, String, String) {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("settings:") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "ended before it began");
    }
    // Enough time for some of the steps, but not for all.
    std::thread::sleep(Duration::from_millis(500));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).map(|_| rest)
    });
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    let start = Instant::now();
    let status = child.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60));
    (status.code(), stdout, rest.join().unwrap().unwrap())
}

#[test]
fn a_run_delivers_what_it_measured() {
    let child = start(&["train", "-v", "--backend", "meta", "--model", "mlp", "--steps", "1000000000", "--json", "-"]);
    let (code, stdout, stderr) = interrupted(child);
    assert_eq!(code, Some(130));
    assert!(stderr.ends_with("interrupted: what was measured until then was delivered\n"), "{stderr}");
    let run: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&run["schema"], &run["interrupted"]), (&"vramlab-train-1".into(), &true.into()));
    let steps = run["steps"].as_array().unwrap();
    assert!(steps.len() >= 8, "{}", steps.len());
    assert_eq!(steps.last().unwrap()[0], "end");
}

#[test]
fn people_are_told_that_it_was_stopped() {
    let child = start(&["train", "-v", "--backend", "meta", "--model", "mlp", "--steps", "1000000000"]);
    let (code, stdout, stderr) = interrupted(child);
    assert_eq!(code, Some(130));
    assert!(stderr.contains("stopping after this step; Ctrl-C again to stop now\n"), "{stderr}");
    assert!(stderr.ends_with("interrupted: what was measured until then was delivered\n"), "{stderr}");
    assert!(stdout.contains("stopped early"), "{stdout}");
}
