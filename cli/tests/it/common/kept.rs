//! The user's files under a rehearsal: a project that attacks change, its state, and what differs from it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::rehearsal::FOLDER;

/// Rehearses a command. Returns the answer, and what was printed as errors.
pub(crate) fn rehearse(mut command: Command, words: &[&str], answer: &Path) -> (Value, String) {
    let output = command.args(["--json", answer.to_str().unwrap(), "--"]).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    let json = fs::read_to_string(answer).unwrap_or_else(|error| panic!("{error}: {text}"));
    (serde_json::from_str(&json).unwrap(), text)
}

/// A command without the answer that `command` puts into the folder.
pub(crate) fn quiet(folder: &Path, flags: &[&str]) -> Command {
    let mut made = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    made.current_dir(folder).env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
    made.args(["rehearse", "--no-values"]).args(flags);
    made
}

/// True if this system lets a run have a namespace. If it does not, the answer must say what is then not protected.
pub(crate) fn in_a_namespace(answer: &Value) -> bool {
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

pub(crate) type State = BTreeMap<PathBuf, (u32, u32, u64, i64, i64, i64, Vec<u8>)>;

/// Everything below a folder: mode, owner, links, times of the last write and the last change, contents.
pub(crate) fn state(root: &Path) -> State {
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
pub(crate) fn differing(before: &State, root: &Path) -> Vec<PathBuf> {
    let after = state(root);
    let paths = before.keys().chain(after.keys());
    paths.filter(|path| before.get(*path) != after.get(*path)).cloned().collect()
}

/// Makes the files that the attacks change.
pub(crate) fn project(root: &Path) -> PathBuf {
    project_for(root, "attacks.py")
}

/// The same for another list of attacks.
pub(crate) fn project_for(root: &Path, attacks: &str) -> PathBuf {
    let project = root.join("a:b, c/project");
    for folder in ["files", "out/checkpoint-1", "old-folder", "tree/deep"] {
        fs::create_dir_all(project.join(folder)).unwrap();
    }
    let names = Command::new("python3").arg(Path::new(FOLDER).join(attacks)).arg("names").output().unwrap();
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

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}
