//! What a rehearsal tells the Python inside the script's processes, and how the files are called that come back.
//!
//! `cargo xtask json` makes `rehearsal/python/_vramlab_rehearsal/boot/schema.py` of this file and of the structs in `answers.rs`: both sides
//! have the names from here.

use std::path::PathBuf;

use serde::Serialize;

use super::request::Use;

/// Ending of a process's answer: [`Answer`](super::answers::Answer), as JSON. The name before it is the process's number, as of all files here.
pub(super) const ANSWER: &str = ".json";
/// Ending of PyTorch's snapshot of a process.
pub(super) const SNAPSHOT: &str = ".pickle";
/// Ending of an empty file that says that a Python has started.
pub(super) const PYTHON: &str = ".python";
/// Ending of an empty file that says that a process imports PyTorch.
pub(super) const IMPORTS: &str = ".imports";
/// Ending of the path of a Python that looked for PyTorch and has none, as text.
pub(super) const NO_TORCH: &str = ".no-torch";
/// Ending of [`Started`](super::answers::Started), as JSON.
pub(super) const STARTED: &str = ".started";
/// Ending of an error of the rehearsal's own code, as text.
pub(super) const FAULT: &str = ".fault";
/// Ending of a request of the script that a rehearsal cannot fulfil, as text.
pub(super) const PROBLEM: &str = ".problem";
/// Ending of what was made up in place of downloads: a list of sentences, as JSON.
pub(super) const MADE_UP: &str = ".made-up";
/// Ending of what the script wanted from a network and did not get: a list of sentences, as JSON.
pub(super) const ASKED: &str = ".asked";
/// Name of the file whose presence tells processes that all ranks are done.
pub(super) const STOP: &str = "stop";

/// Settings for each Python of the run.
#[derive(Debug, Serialize)]
pub(super) struct Settings {
    /// The folder for the files of the processes.
    pub(super) answers: PathBuf,
    /// The script ends after this number of an optimizer's steps.
    pub(super) steps: Option<u64>,
    /// The script ends after the step by which all of these were seen.
    pub(super) until: Vec<Use>,
    /// The script ends as soon as memory is flat, within these limits.
    pub(super) settled: Option<Settled>,
    /// True if allocations are recorded with their lines.
    pub(super) stacks: bool,
    /// True if each phase of the run is told with its own peak.
    pub(super) phases: bool,
    /// True if small tensors are computed.
    pub(super) values: bool,
    /// The file with configurations that the program knows, by names on the hub in lower case.
    pub(super) known: PathBuf,
    /// Words of a made-up text, where data that is not there is made up.
    pub(super) make_data: Option<u64>,
    /// Maximum number of events that PyTorch keeps.
    pub(super) entries: u64,
    /// Set if only some ranks of many are started.
    pub(super) world: Option<World>,
    /// Number of the signal that asks for the answer.
    pub(super) signal: i32,
}

/// How long a run waits for flat memory.
#[derive(Debug, Serialize)]
pub(super) struct Settled {
    /// Least number of steps.
    pub(super) least: u64,
    /// Greatest number of steps.
    pub(super) most: u64,
    /// Seconds after the first step.
    pub(super) seconds: u64,
}

/// Ranks of which some are started.
#[derive(Debug, Serialize)]
pub(super) struct World {
    /// Number of all ranks.
    pub(super) size: u32,
    /// Numbers of the started ones.
    pub(super) started: Vec<u32>,
    /// The folder through which they exchange data.
    pub(super) meet: PathBuf,
    /// Names of the environment variables that torchrun sets for a rank.
    pub(super) variables: Vec<&'static str>,
}
