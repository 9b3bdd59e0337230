//! A rehearsal that is killed leaves no process and no folder.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::kept::quiet;

/// Returns the processes whose parent is this one, with their names.
fn children(parent: u32) -> Vec<(u32, String)> {
    let child = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (begin, rest) = stat.rsplit_once(") ")?;
        let (pid, name) = begin.split_once(" (")?;
        let is_child = rest.split(' ').nth(1)? == parent.to_string();
        is_child.then(|| (pid.parse().unwrap(), name.to_owned()))
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| child(entry.ok()?)).collect()
}

/// Starts a rehearsal whose script starts `count` processes, and returns it with these.
fn started(folder: &Path, temporary: &Path, script: &str, count: usize) -> (std::process::Child, Vec<u32>) {
    let mut command = quiet(folder, &[]);
    command.env("TMPDIR", temporary).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.args(["--", "sh", "-c", script]).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let pid = |line: String| line.strip_prefix("pid ").map(|pid| pid.parse::<u32>().unwrap());
    let started: Vec<u32> = lines.by_ref().map_while(Result::ok).filter_map(pid).take(count).collect();
    assert_eq!(started.len(), count);
    (child, started)
}

/// Waits until this holds, for ten seconds at most.
fn soon(holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !holds() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    holds()
}

fn sleeps(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
}

fn folders_of_runs(temporary: &Path) -> usize {
    let is_its_own = |name: std::ffi::OsString| name.to_string_lossy().starts_with("vramlab-rehearsal-");
    fs::read_dir(temporary).unwrap().filter(|entry| is_its_own(entry.as_ref().unwrap().file_name())).count()
}

#[test]
fn when_it_is_killed_its_processes_and_its_folder_go_too() {
    let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The script's own files are withheld, so its children say who they are on its standard error.
    let script = "setsid sleep 600 & echo pid $! >&2; sleep 600 & echo pid $! >&2; wait";
    let (mut child, processes) = started(folder.path(), temporary.path(), script, 2);
    let is_left = || processes.iter().copied().any(sleeps) || folders_of_runs(temporary.path()) > 0;
    assert!(is_left(), "they run");
    // As `killall -9` and `pkill -9 -f` would: of its processes only the program itself has the program's name.
    let own: Vec<_> = children(child.id());
    let command = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(matches!(&own[..], [(pid, name)] if name != "vramlab" && !command(*pid).contains("vramlab")), "{own:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(soon(|| !is_left()), "{processes:?} {:?}", fs::read_dir(temporary.path()).unwrap().collect::<Vec<_>>());
}

#[test]
fn when_its_keeper_is_killed_too_the_script_ends_and_the_next_run_removes_the_folder() {
    let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut child, processes) = started(folder.path(), temporary.path(), "echo pid $$ >&2; exec sleep 600", 1);
    assert!(soon(|| sleeps(processes[0])), "it runs");
    let keeper = children(child.id())[0].0.to_string();
    let mut kill = std::process::Command::new("sh");
    kill.args(["-c", "kill -9 $1 $2", "sh", &child.id().to_string(), &keeper]);
    assert!(kill.status().unwrap().success());
    child.wait().unwrap();
    assert!(soon(|| !sleeps(processes[0])), "the script");
    assert_eq!(folders_of_runs(temporary.path()), 1, "the folder");
    let mut next = quiet(folder.path(), &[]);
    next.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::null());
    next.args(["--", "true"]).status().unwrap();
    assert_eq!(folders_of_runs(temporary.path()), 0);
}
