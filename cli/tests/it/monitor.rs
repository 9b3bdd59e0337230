//! `monitor`: it shows the running trainings; to find none is not a failure.

use crate::common::{fits, refused, vramlab};

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn monitor(directory: &Path, args: &[&str]) -> String {
    let output = vramlab().env("VRAMLAB_RUNTIME_DIR", directory).arg("monitor").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn seen(directory: &Path) -> Value {
    serde_json::from_str(&monitor(directory, &["--once", "--json", "-"])).unwrap()
}

/// Process that ends when the guard is dropped.
struct Training(Child);

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn train(directory: &Path) -> Training {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    let run = ["train", "--backend", "meta", "--model", "two-layer", "--keep-intermediate", "--steps", "1000000000"];
    command.env("VRAMLAB_RUNTIME_DIR", directory).args(run).stdout(Stdio::null()).stderr(Stdio::null());
    Training(command.spawn().unwrap())
}

#[test]
fn nothing_runs() {
    let directory = tempfile::tempdir().unwrap();
    for place in [directory.path().to_path_buf(), directory.path().join("absent")] {
        let seen = seen(&place);
        assert_eq!((&seen["schema"], &seen["runs"]), (&"vramlab-monitor-1".into(), &Value::Array(Vec::new())));
        let text = monitor(&place, &["--once"]);
        fits(&text);
        assert!(text.contains("no training of vramlab runs"), "{text}");
    }
    assert!(refused(2, &["monitor", "--json", "here.json"]).contains("--once"));
    assert!(refused(2, &["monitor", "--interval", "0"]).contains("--interval"));
}

#[test]
fn what_is_left_of_the_dead_and_what_is_no_status_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    file("4000000000.json", r#"{ "schema": "vramlab-status-1", "pid": 4000000000, "updated_ms": 0 }"#);
    file("17.json", "not JSON");
    file("1.json", r#"{ "schema": "something-else" }"#);
    file("notes.txt", "hello");
    assert_eq!(seen(directory.path())["runs"], Value::Array(Vec::new()));
    assert!(!directory.path().join("4000000000.json").exists(), "the dead one's file is removed");
    assert!(directory.path().join("notes.txt").exists());
}

#[test]
fn a_training_is_seen_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let training = train(directory.path());
    let pid = training.0.id();
    let start = Instant::now();
    let run = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "never seen");
        if let Some(run) = seen(directory.path())["runs"].get(0).filter(|run| !run["leak"].is_null()) {
            break run.clone();
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&run["pid"], &run["model"]), (&pid.into(), &"two-layer".into()));
    // By its number it is watched alone; another process is none of this program's trainings.
    let alone: Value =
        serde_json::from_str(&monitor(directory.path(), &[&pid.to_string(), "--once", "--json", "-"])).unwrap();
    assert_eq!((alone["runs"].as_array().unwrap().len(), &alone["runs"][0]["pid"]), (1, &pid.into()));
    let other = refused(2, &["watch", "1", "--once"]);
    assert!(
        other.contains("1 is not a training that tells of its memory") && other.contains("`vramlab watch`"),
        "{other}"
    );
    assert_eq!(run["device"]["backend"], "meta");
    assert!(run["step"].as_u64().unwrap() > 0 && run["rings"]["allocated"].as_u64().unwrap() > 0, "{run}");
    let held: u64 = run["by_category"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(held, run["rings"]["allocated"].as_u64().unwrap());
    assert_eq!(run["leak"]["growth_bytes_per_step"], 2560, "{}", run["leak"]);
    let text = monitor(directory.path(), &["--once"]);
    fits(&text);
    assert!(text.contains("two-layer") && text.contains("memory grows by"), "{text}");
    drop(training);
    assert_eq!(seen(directory.path())["runs"], Value::Array(Vec::new()), "it is gone");
}

/// What a watched training of PyTorch tells is shown beside this program's own.
#[test]
fn a_training_of_pytorch_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let told = serde_json::json!({ "schema": "vramlab-watched-1", "pid": pid, "script": "train.py", "steps": 12, "reserved": 4096 });
    std::fs::write(directory.path().join(format!("{pid}.json")), told.to_string()).unwrap();
    assert_eq!(seen(directory.path())["watched"][0]["steps"], 12);
    let text = monitor(directory.path(), &["--once"]);
    assert!(text.contains("1 training of PyTorch, with 4 KiB reserved in all") && text.contains("train.py"), "{text}");
}

/// A directory that another user owns, or that others can write to, is not trusted.
#[cfg(unix)]
#[test]
fn only_a_directory_of_ones_own_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let set = |mode| std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(mode)).unwrap();
    set(0o777);
    let output = vramlab().env("VRAMLAB_RUNTIME_DIR", directory.path()).args(["monitor", "--once"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.contains("can be written by other users")), (Some(2), true), "{error}");
    // Nothing is written there either.
    let _training = train(directory.path());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    set(0o700);
    assert!(monitor(directory.path(), &["--once"]).contains("Trainings") || seen(directory.path())["runs"].is_array());
}

/// A pipe is not opened, since that would wait for a writer. Neither is a link, which may lead to a pipe.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(directory.path().join("1.json")).status().unwrap().success());
    std::os::unix::fs::symlink(directory.path().join("1.json"), directory.path().join("2.json")).unwrap();
    let start = Instant::now();
    assert_eq!(seen(directory.path())["runs"], Value::Array(Vec::new()));
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn it_ends_with_its_reader() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.env("VRAMLAB_RUNTIME_DIR", directory.path()).args(["monitor", "--json", "-", "--interval", "0.1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            panic!("nobody reads, and it goes on");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
