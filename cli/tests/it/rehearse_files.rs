//! Rehearsals leave the user's files alone, whatever a script and its children do, and say what changed all the same.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::rehearsal::{FOLDER, SCRIPT, command};
use serde_json::Value;

/// Rehearses a command. Returns the answer, and what was printed as errors.
fn rehearse(mut command: Command, words: &[&str], answer: &Path) -> (Value, String) {
    let output = command.args(["--json", answer.to_str().unwrap(), "--"]).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    let json = fs::read_to_string(answer).unwrap_or_else(|error| panic!("{error}: {text}"));
    (serde_json::from_str(&json).unwrap(), text)
}

/// A command without the answer that `command` puts into the folder.
fn quiet(folder: &Path, flags: &[&str]) -> Command {
    let mut made = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    made.current_dir(folder).env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
    made.args(["rehearse", "--no-values"]).args(flags);
    made
}

/// True if this system lets a run have a namespace. If it does not, the answer must say what is then not protected.
fn in_a_namespace(answer: &Value) -> bool {
    let is_one = answer["protection"]["way"] == "namespace";
    if !is_one {
        assert!(!answer["protection"]["lacks"].as_array().unwrap().is_empty(), "{answer}");
        let problems = answer["problems"].as_array().unwrap();
        let warns = problems.iter().any(|problem| problem.as_str().unwrap().contains("LD_PRELOAD"));
        assert_eq!(warns, answer["protection"]["way"] != "filter", "{problems:?}");
        eprintln!("not tested: this system allows no namespace: {}", answer["protection"]["lacks"]);
    }
    is_one
}

type State = BTreeMap<PathBuf, (u32, u32, u64, i64, i64, i64, Vec<u8>)>;

/// Everything below a folder: mode, owner, links, times of the last write and the last change, contents.
fn state(root: &Path) -> State {
    let mut found = State::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let contents = if metadata.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let of = &metadata;
            let state = (of.mode(), of.uid(), of.nlink(), of.mtime(), of.ctime(), of.ctime_nsec(), contents);
            found.insert(path, state);
        }
    }
    found
}

/// Returns what differs from an earlier state.
fn differing(before: &State, root: &Path) -> Vec<PathBuf> {
    let after = state(root);
    let paths = before.keys().chain(after.keys());
    paths.filter(|path| before.get(*path) != after.get(*path)).cloned().collect()
}

/// Makes the files that the attacks change.
fn project(root: &Path) -> PathBuf {
    let project = root.join("a:b, c/project");
    for folder in ["files", "out/checkpoint-1", "old-folder", "tree/deep"] {
        fs::create_dir_all(project.join(folder)).unwrap();
    }
    let names = Command::new("python3").arg(Path::new(FOLDER).join("attacks.py")).arg("names").output().unwrap();
    for name in String::from_utf8(names.stdout).unwrap().lines() {
        fs::write(project.join("files").join(name), "before").unwrap();
    }
    for name in ["out/checkpoint-1/model", "old-folder/model", "tree/deep/file"] {
        fs::write(project.join(name), "before").unwrap();
    }
    symlink("files", project.join("link")).unwrap();
    repository(&project.join("old.git"));
    project
}

/// Makes a repository with a file, if there is a git.
fn repository(folder: &Path) {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("file"), "before").unwrap();
    for words in [&["init", "-q"][..], &["add", "file"], &["commit", "-qm", "one"]] {
        let mut git = Command::new("git");
        let _without = git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-C"]).arg(folder).args(words).status();
    }
}

#[test]
fn no_attack_changes_a_file_and_each_is_seen_by_the_script() {
    let root = tempfile::tempdir().unwrap();
    let project = project(root.path());
    let before = state(root.path());
    let outside = tempfile::tempdir().unwrap();
    let attacks = Path::new(FOLDER).join("attacks.py");
    let words = ["python3", attacks.to_str().unwrap()];
    let (answer, text) = rehearse(quiet(&project, &[]), &words, &outside.path().join("answer.json"));
    if !in_a_namespace(&answer) {
        return;
    }
    assert_eq!(differing(&before, root.path()), Vec::<PathBuf>::new(), "what existed is unchanged");
    assert_eq!(answer["script_exit"], 0, "{text}");
    assert_eq!(answer["changed"], serde_json::json!([]));
    let withheld = answer["withheld"].as_array().unwrap();
    for name in ["files/a_child_with_an_environment_of_its_own (removed)", "files/a_mapping", "tree (removed)"] {
        assert!(withheld.contains(&name.into()), "{name}: {withheld:?}");
    }
}

/// Makes all attacks under one way to protect files. Returns the answer and what the script printed; `None` where this way does not work.
fn attacked(way: &str) -> Option<(Value, String, PathBuf)> {
    let root = tempfile::tempdir().unwrap();
    let project = project(root.path());
    let before = state(root.path());
    let outside = tempfile::tempdir().unwrap();
    let attacks = Path::new(FOLDER).join("attacks.py");
    let words = ["python3", attacks.to_str().unwrap()];
    let mut command = quiet(&project, &[]);
    command.env("VRAMLAB_REHEARSAL_PROTECTION", way);
    let (answer, text) = rehearse(command, &words, &outside.path().join("answer.json"));
    if answer["protection"]["way"] != way {
        eprintln!("not tested: this system does not allow {way}: {}", answer["protection"]["lacks"]);
        return None;
    }
    assert_eq!(differing(&before, root.path()), Vec::<PathBuf>::new(), "what existed is unchanged");
    assert_eq!(answer["changed"], serde_json::json!([]), "{text}");
    // What goes through the C library is seen by the script, and so is what its children do.
    for seen in ["a_child_with_an_environment_of_its_own", "a_mapping", "attributes_through_a_descriptor", "a_socket"] {
        assert!(!text.contains(&format!("'{seen}'")), "{seen}: {text}");
    }
    Some((answer, text, project))
}

#[test]
fn a_filter_refuses_what_the_library_does_not_see() {
    let Some((answer, text, project)) = attacked("filter") else { return };
    let refused = answer["refused"].as_array().unwrap();
    let raw = project.join("files/calls_of_the_system_without_the_c_library");
    assert!(refused.contains(&raw.to_str().unwrap().into()), "{refused:?} {text}");
}

#[test]
fn landlock_refuses_it_too_and_the_command_says_what_it_does_not_know() {
    let Some((answer, text, _)) = attacked("landlock") else { return };
    assert!(text.contains("'calls_of_the_system_without_the_c_library'"), "{text}");
    let warned = |text: &str| text.contains("Landlock refuses most changes") && text.contains("modes, owners, times");
    assert!(text.starts_with("warning: ") && warned(&text), "before it starts: {text}");
    assert!(warned(answer["problems"].as_array().unwrap().last().unwrap().as_str().unwrap()), "{answer}");
    assert_eq!(answer["inexact"], serde_json::json!([]), "it changes no size");
}

#[test]
fn another_user_writes_below_folders_that_are_not_his() {
    const NOBODY: u32 = 65534;
    if !is_root() {
        eprintln!("not tested: only root can become another user");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let project = root.path().join("of root/project");
    fs::create_dir_all(project.join("folder")).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for file in ["file", "folder/file", "shared"] {
        fs::write(project.join(file), "before\n").unwrap();
        chown(project.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for folder in ["", "folder"] {
        chown(project.join(folder), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let script = "echo after >> file && rm folder/file && mv folder moved && mkdir folder && grep -q after file && test -d moved";
    let run = |script: &str| {
        let outside = tempfile::tempdir().unwrap();
        chown(outside.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = quiet(&project, &[]);
        command.uid(NOBODY).gid(NOBODY).env("HOME", "/nonexistent");
        rehearse(command, &["sh", "-c", script], &outside.path().join("answer.json"))
    };
    let before = state(root.path());
    let (answer, text) = run(script);
    assert_eq!((&answer["script_exit"], state(root.path()) == before), (&0.into(), true), "{text} {answer}");
    // A file of another group can be written, but in no namespace of this user's.
    chown(project.join("shared"), Some(NOBODY), Some(0)).unwrap();
    let before = state(root.path());
    let (answer, text) = run("echo after >> shared && grep -q after shared");
    assert_eq!((&answer["script_exit"], state(root.path()) == before), (&0.into(), true), "{text} {answer}");
    assert_ne!(answer["protection"]["way"], "namespace");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

#[test]
fn old_temporary_files_stay_without_a_namespace_too() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(temporary.path().join("old")).unwrap();
    for name in ["written", "removed", "old/inside"] {
        fs::write(temporary.path().join(name), "before").unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    let before = state(temporary.path());
    for way in ["filter", "library"] {
        let mut command = command(folder.path(), &[]);
        command.env("TMPDIR", temporary.path()).env("VRAMLAB_REHEARSAL_PROTECTION", way);
        let script = "cd $TMPDIR && echo after > written && rm removed && echo new > old/new && rm -r old && test \"$(cat written)\" = after \
                      && test ! -e removed && test ! -e old && echo x > made && echo y > made && rm made";
        let output = command.args(["--", "sh", "-c", script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = fs::read_to_string(folder.path().join("answer.json")).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["script_exit"], 0, "{way}: {text}");
        let after = state(temporary.path());
        let contents = |state: &State| state.values().map(|file| (file.0, file.6.clone())).collect::<Vec<_>>();
        assert_eq!(contents(&after), contents(&before), "{way}: {after:?}");
    }
}

#[test]
fn a_variable_opens_neither_the_working_folder_nor_what_lies_around_it() {
    for (name, at) in [("TMPDIR", "."), ("HF_HOME", "."), ("HF_HOME", "inside"), ("HF_HOME", ".."), ("TMPDIR", "..")] {
        let root = tempfile::tempdir().unwrap();
        let project = root.path().join("project");
        fs::create_dir_all(project.join("inside")).unwrap();
        for file in ["project/file", "project/inside/file", "beside"] {
            fs::write(root.path().join(file), "before").unwrap();
        }
        let before = state(root.path());
        let outside = tempfile::tempdir().unwrap();
        let mut command = quiet(&project, &[]);
        command.env(name, project.join(at).canonicalize().unwrap());
        let words = ["sh", "-c", "echo after > file; rm inside/file; echo after > ../beside; ls -a"];
        let (answer, text) = rehearse(command, &words, &outside.path().join("answer.json"));
        if !in_a_namespace(&answer) {
            return;
        }
        assert_eq!(state(root.path()), before, "{name}={at}: {text}");
        assert_eq!(answer["script_exit"], 0, "{text}");
    }
}

#[test]
fn what_changes_all_the_same_is_listed_and_is_not_exact() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("notes.txt"), "before").unwrap();
    fs::write(at("gone.txt"), "before").unwrap();
    let outside = tempfile::tempdir().unwrap();
    // Beside the folder, so that the answer does not depend on where the sources lie.
    fs::copy(Path::new(FOLDER).join(SCRIPT), outside.path().join(SCRIPT)).unwrap();
    let script = Path::new("..").join(outside.path().file_name().unwrap()).join(SCRIPT);
    let words = ["python3", script.to_str().unwrap(), "steps=1", "sleep=2", "steps=2"];
    let (notes, gone) = (at("notes.txt"), at("gone.txt"));
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        fs::write(notes, "after").unwrap();
        fs::remove_file(gone).unwrap();
    });
    let (answer, _) = rehearse(quiet(folder.path(), &[]), &words, &outside.path().join("answer.json"));
    writer.join().unwrap();
    assert_eq!(answer["changed"], serde_json::json!(["gone.txt (removed)", "notes.txt (changed)"]));
    assert_eq!((&answer["fits"], &answer["exact"]), (&true.into(), &false.into()));
    assert!(answer["problems"][0].as_str().unwrap().contains("changed while the script ran"), "{answer}");
}

#[test]
fn connections_beyond_this_machine_are_listed_and_may_be_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Addresses for documentation, which nobody has. Nothing is sent: the first does not wait, and the second is this machine.
    let code = "import socket\nfor address in [('192.0.2.7', 443), ('127.0.0.1', 9)]:\n    s = socket.socket()\n    \
                s.setblocking(False)\n    print(s.connect_ex(address))";
    for offline in [false, true] {
        let mut command = command(folder.path(), if offline { &["--offline"] } else { &[] });
        let output = command.args(["--", "python3", "-c", code]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = fs::read_to_string(folder.path().join("answer.json")).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        if !in_a_namespace(&answer) {
            return;
        }
        assert_eq!(answer["contacted"], serde_json::json!(["192.0.2.7:443"]), "{text}");
        let refused = text.contains(&format!("{}\n", libc::ENETUNREACH));
        assert!(refused || !offline, "{text}");
    }
}

#[test]
fn nothing_in_its_folder_holds_or_leads_the_collector() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for folder in ["project", "victim", "outside"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::write(at("victim/file"), "before").unwrap();
    let code = "import os\nlog = os.environ['VRAMLAB_REHEARSAL_LOG']\nos.path.exists(log) and os.unlink(log)\nrun = os.path.dirname(log)\n\
                os.mkfifo(log)\nos.mkfifo(run + '/answers/1.json')\nos.symlink('../../victim/file', run + '/answers/stop')\n\
                os.mkfifo('pipe')\nos.mkdir('locked')\nopen('locked/file', 'w').write('kept')\nos.chmod('locked', 0)\n\
                os.symlink(os.path.abspath('../victim'), 'elsewhere')\nopen('../outside/new', 'w').write('escaped')";
    let kept = at("kept");
    let start = Instant::now();
    let command = quiet(&at("project"), &["--keep-outputs", kept.to_str().unwrap(), "--seconds", "20"]);
    let (answer, text) = rehearse(command, &["python3", "-c", code], &at("answer.json"));
    assert!(start.elapsed() < Duration::from_secs(20), "{text}");
    if !in_a_namespace(&answer) {
        return;
    }
    assert_eq!(answer["script_exit"], 0, "{text}");
    let left: Vec<_> = fs::read_dir(at("victim")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!((left, fs::read_to_string(at("victim/file")).unwrap()), (vec!["file".into()], "before".into()));
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(kept.join("locked/file")).unwrap(), "kept");
    assert!(answer["changed"].as_array().unwrap().is_empty(), "{answer}");
}

#[test]
fn when_it_is_killed_its_processes_and_its_folder_go_too() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let mut command = quiet(folder.path(), &[]);
    command.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The script's own files are withheld, so its children say who they are on its standard error.
    let script = "setsid sleep 600 & echo pid $! >&2; sleep 600 & echo pid $! >&2; wait";
    let mut child = command.args(["--", "sh", "-c", script]).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let pid = |line: String| line.strip_prefix("pid ").map(|pid| pid.parse::<u32>().unwrap());
    let started: Vec<u32> = lines.by_ref().map_while(Result::ok).filter_map(pid).take(2).collect();
    assert_eq!(started.len(), 2);
    let is_left = || {
        let runs = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
        let is_its_own = |name: std::ffi::OsString| name.to_string_lossy().starts_with("vramlab-rehearsal-");
        let mut left = fs::read_dir(temporary.path()).unwrap();
        started.iter().any(runs) || left.any(|entry| is_its_own(entry.unwrap().file_name()))
    };
    assert!(is_left(), "they run");
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    while is_left() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_left(), "{:?} {:?}", started, fs::read_dir(temporary.path()).unwrap().collect::<Vec<_>>());
}
