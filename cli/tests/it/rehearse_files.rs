//! Rehearsals leave the user's files alone, whatever a script and its children do, and say what changed all the same.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::kept::{State, in_a_namespace, is_root, quiet, rehearse, state};
use crate::common::rehearsal::{FOLDER, SCRIPT, command};
use serde_json::Value;

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
fn requests_to_programs_outside_of_the_run_are_listed() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = outside.path().canonicalize().unwrap().join("daemon.sock");
    let daemon = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    // The run's own server is none of them, and neither is one that is not there.
    let code = "import os, socket, sys\nos.chdir(os.path.dirname(sys.argv[1]))\nown = socket.create_server(('127.0.0.1', 0))\n\
                for address in [('127.0.0.1', int(sys.argv[2])), own.getsockname(), ('127.0.0.1', 9)]:\n    socket.socket().connect_ex(address)\n\
                for path in ['daemon.sock', '/nonexistent.sock']:\n    socket.socket(socket.AF_UNIX).connect_ex(path)";
    let words = ["python3", "-c", code, socket.to_str().unwrap(), &port.to_string()];
    let (answer, text) = rehearse(quiet(folder.path(), &[]), &words, &outside.path().join("answer.json"));
    if answer["protection"]["way"] == "library" {
        return;
    }
    let mut contacted: Vec<&str> =
        answer["contacted"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    contacted.sort_unstable();
    assert_eq!(contacted, [format!("127.0.0.1:{port}"), format!("unix:{}", socket.display())], "{text}");
    drop((daemon, server));
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
        let (listed, other) = if offline { ("refused", "contacted") } else { ("contacted", "refused") };
        let address = if offline { "connection to 192.0.2.7:443" } else { "192.0.2.7:443" };
        assert_eq!(
            (&answer[listed], &answer[other]),
            (&serde_json::json!([address]), &serde_json::json!([])),
            "{text}"
        );
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
fn what_a_script_prints_reaches_a_file_that_the_output_goes_to() {
    for way in ["namespace", "filter", "library"] {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log");
        let mut command = quiet(root.path(), &[]);
        command.env("VRAMLAB_REHEARSAL_PROTECTION", way).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let script = "import os\nprint('parent', flush=True)\nos.system('echo child; echo error >&2')";
        command.args(["--", "python3", "-c", script]).status().unwrap();
        let text = fs::read_to_string(&log).unwrap();
        let lacks = |word: &&str| !text.lines().any(|line| line == *word);
        assert_eq!(["parent", "child", "error"].iter().copied().find(|word| lacks(word)), None, "{way}: {text}");
    }
}

#[test]
fn a_disk_without_room_for_the_run_is_named() {
    if !is_root() {
        eprintln!("not tested: only root can make a small disk");
        return;
    }
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |size: &str, words: &str| {
        let small = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("unshare");
        let script = "mount -t tmpfs -o size=$1 small \"$2\" || exit 99; export TMPDIR=\"$2\"; shift 2; exec \"$@\"";
        command.args(["-m", "sh", "-c", script, "sh", size]).arg(small.path()).arg(env!("CARGO_BIN_EXE_vramlab"));
        let answer = outside.path().join("answer.json");
        command.args(["rehearse", "--no-values", "--json"]).arg(&answer).args(["--", "sh", "-c", words]);
        command.current_dir(folder.path()).env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr), small.path().display().to_string(), answer)
    };
    let (code, _, errors, small, _) = run("4k", "true");
    if code == Some(99) {
        eprintln!("not tested: no disk can be mounted here: {errors}");
        return;
    }
    assert!(code == Some(3) && errors.contains(&small) && errors.contains("TMPDIR"), "{code:?} {errors}");
    let (code, said, errors, small, answer) = run("4m", "head -c 9000000 /dev/zero > weights.pt; sync");
    assert_eq!(code, Some(3), "{errors}");
    let answer: Value = serde_json::from_str(&fs::read_to_string(answer).unwrap()).unwrap();
    let problem = answer["problems"][0].as_str().unwrap();
    assert!(problem.starts_with(&format!("no room was left in {small} (TMPDIR)")), "{answer}");
    assert!(said.contains("no room was left") || errors.contains("no room was left"), "{said}{errors}");
}

#[test]
fn a_mount_beside_its_folder_does_not_hide_what_the_script_answers() {
    if !is_root() {
        eprintln!("not tested: only root can mount");
        return;
    }
    let (folder, temporary, outside) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(temporary.path().join("mounted")).unwrap();
    let mut command = std::process::Command::new("unshare");
    let script = "mount -t tmpfs beside \"$1/mounted\" || exit 99; export TMPDIR=\"$1\"; shift; exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]).arg(temporary.path()).arg(env!("CARGO_BIN_EXE_vramlab"));
    let answer = outside.path().join("answer.json");
    command.args(["rehearse", "--no-values", "--json"]).arg(&answer).args(["--", "python3"]);
    command.arg(Path::new(FOLDER).join(SCRIPT)).current_dir(folder.path());
    let output = command.env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) {
        eprintln!("not tested: nothing can be mounted here: {errors}");
        return;
    }
    let answer: Value = serde_json::from_str(&fs::read_to_string(answer).unwrap()).unwrap();
    assert_ne!(answer["ranks"], serde_json::json!([]), "{answer} {errors}");
}

#[test]
fn without_namespace_and_filter_the_command_says_what_is_not_protected_before_it_starts() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = quiet(folder.path(), &[]);
    command.env("VRAMLAB_REHEARSAL_PROTECTION", "library");
    let words = ["sh", "-c", "echo begins >&2"];
    let (answer, text) = rehearse(command, &words, &outside.path().join("answer.json"));
    assert_eq!(answer["protection"]["way"], "library");
    let (warned, begins) = (text.find("warning: ").unwrap(), text.find("begins").unwrap());
    assert!(warned < begins && text[warned..begins].contains("write for real"), "{text}");
    let last = answer["problems"].as_array().unwrap().last().unwrap();
    assert!(last.as_str().unwrap().contains("write for real"), "{answer}");
}
