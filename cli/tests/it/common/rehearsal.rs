//! Rehearsals of scripts with a stand-in for PyTorch.

use std::path::Path;
use std::process::Command;

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
