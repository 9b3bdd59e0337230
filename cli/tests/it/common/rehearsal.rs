//! Rehearsals of scripts with a stand-in for PyTorch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// Where the scripts and the stand-in are.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rehearse");

/// The tests' script, as a command names it in the folder of its run: answers show the command, so that lines would be longer the deeper
/// the sources lie.
pub(crate) const SCRIPT: &str = "script.py";

/// A rehearsal in this folder, into which the script is copied. The library lies beside the program where cargo builds the whole
/// workspace; else it is named.
pub(crate) fn command(folder: &Path, flags: &[&str]) -> Command {
    std::fs::copy(Path::new(FOLDER).join(SCRIPT), folder.join(SCRIPT)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.current_dir(folder).env_remove("NO_COLOR").env("PYTHONPATH", FOLDER).env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["rehearse", "--no-values", "--json", "answer.json"]).args(flags);
    command
}

/// Result of a rehearsal in a temporary folder.
pub(crate) struct Rehearsed {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) folder: TempDir,
}

impl Rehearsed {
    pub(crate) fn json(&self) -> Value {
        let text = fs::read_to_string(self.folder.path().join("answer.json"));
        let text = text.unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr));
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub(crate) fn rehearse(flags: &[&str], words: &[&str]) -> Rehearsed {
    rehearse_in(tempfile::tempdir().unwrap(), flags, words)
}

pub(crate) fn rehearse_in(folder: TempDir, flags: &[&str], words: &[&str]) -> Rehearsed {
    let mut command = command(folder.path(), flags);
    let output = command.args(["--", "python3"]).arg(SCRIPT).args(words).output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(!stderr.contains("panicked"), "{stderr}");
    Rehearsed { code: output.status.code(), stdout, stderr, folder }
}

/// Returns the bytes of unknown purpose when most is live, from a file of events.
pub(crate) fn unknown_at_the_peak(events: &Value) -> u64 {
    let number = |list: &str, at: usize| events[list][at].as_u64().unwrap();
    let unknown = events["categories"].as_array().unwrap().iter().position(|name| name == "unknown").unwrap() as u64;
    let (mut live, mut blocks, mut sized, mut freed) = ((0, 0), Vec::new(), 0, 0);
    let mut most = (0, 0);
    for kind in events["ev"].as_str().unwrap().chars() {
        if kind == 'a' {
            let (bytes, category) = (number("ev_size", sized), number("ev_category", blocks.len()));
            blocks.push((bytes, if category == unknown { bytes } else { 0 }));
            live = (live.0 + bytes, live.1 + blocks[blocks.len() - 1].1);
        } else if kind == 'f' {
            let (bytes, of_these) = blocks[number("ev_free_ref", freed) as usize];
            live = (live.0 - bytes, live.1 - of_these);
            freed += 1;
        }
        sized += usize::from(kind != 'f');
        most = if live.0 > most.0 { live } else { most };
    }
    most.1
}
