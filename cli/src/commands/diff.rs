//! `vramlab diff`: where two runs begin to differ in memory, and what follows.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use lab::input;
use lab::results::{OtherDevice, SnapshotDiff};
use lab::snapshot::{Snapshot, compare};
use lab::stacks::differences;

use super::recording::chosen_device;
use crate::args::{ComparedArgs, DiffArgs, RunsArgs};
use crate::exit::{Code, Failure, Result};
use crate::file_kind::{self, Kind};
use crate::output;
use crate::ui::Ui;

/// A run, by its recording.
struct Run {
    name: String,
    snapshot: Snapshot,
    /// True for a recording that there was.
    was_there: bool,
}

/// Compares two runs: recordings that there are, or runs that are made and recorded now.
///
/// # Errors
/// Words that `predict` refuses; files that are not snapshots; results that cannot be written.
pub(super) fn run(args: &RunsArgs, ui: &Ui) -> Result<Code> {
    output::check(args.shown.output.destinations())?;
    let [one, other] = [recorded(&args.one, ui)?, recorded(&args.other, ui)?];
    compared(&one, &other, &args.shown, ui)
}

/// Compares two snapshots.
///
/// # Errors
/// Files that are not snapshots; results that cannot be written.
pub(super) fn snapshots(args: &DiffArgs, ui: &Ui) -> Result<Code> {
    output::check(args.shown.output.destinations())?;
    let [one, other] = [opened(&args.before)?, opened(&args.after)?];
    compared(&one, &other, &args.shown, ui)
}

fn compared(one: &Run, other: &Run, shown: &ComparedArgs, ui: &Ui) -> Result<Code> {
    let device = chosen_device(&other.snapshot, &other.name, shown.device)?;
    let both = [&one.snapshot, &other.snapshot];
    let have_requests = both.iter().all(|snapshot| snapshot.records_requests(device));
    let requests = have_requests.then(|| differences(both, device));
    let found = SnapshotDiff::new(
        [one.name.clone(), other.name.clone()],
        device,
        both.map(|snapshot| OtherDevice::all_but(snapshot, device)),
        &compare(both[0], both[1], device),
        requests.as_ref(),
        shown.top,
    );
    let found = SnapshotDiff { went_on: one.was_there && other.was_there, ..found };
    output::deliver_findings(ui, &shown.output, None, &found)?;
    Ok(Code::Done)
}

/// Returns a recording that there is, or makes the run of these words.
fn recorded(words: &OsStr, ui: &Ui) -> Result<Run> {
    let path = Path::new(words);
    let is_snapshot = || {
        let head = file_kind::head(path).ok()?;
        Some(Kind::of_head(&head, path) == Some(Kind::Snapshot))
    };
    match path.is_file() && is_snapshot().unwrap_or(false) {
        true => opened(path),
        false => made(words, ui),
    }
}

fn opened(path: &Path) -> Result<Run> {
    Ok(Run { name: input::name(path), snapshot: Snapshot::open(path)?, was_there: true })
}

/// Makes the run that `predict` makes with these words, in a process of its own.
fn made(words: &OsStr, ui: &Ui) -> Result<Run> {
    let text = words.to_string_lossy().into_owned();
    let split = match Path::new(words).exists() {
        true => Some(vec![text.clone()]),
        false => shlex::split(&text),
    };
    let split = split.filter(|split| !split.is_empty());
    let split =
        split.ok_or_else(|| Failure::usage(format!("{text}: a quotation mark is not closed, or no word is there")))?;
    let folder = tempfile::tempdir().map_err(host)?;
    let file = folder.path().join("run.pickle");
    ui.tell(format!("vramlab predict {text}"));
    let mut command = Command::new(std::env::current_exe().map_err(host)?);
    // The flag comes first: what follows a script's name is the script's.
    command.args(["predict", "--snapshot"]).arg(&file).args(split);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().map_err(host)?;
    let problem = process.stderr.take().map_or_else(String::new, |told| passed_on(told, ui));
    let ended = process.wait().map_err(host)?;
    let code = ended.code().and_then(Code::of_number).unwrap_or(Code::Device);
    if code == Code::Check {
        ui.tell("It does not fit, and its recording ends where memory ran out. Without --gpu it is whole.");
    }
    match code {
        Code::Done | Code::Check if file.is_file() => {
            Ok(Run { name: text, snapshot: Snapshot::open(&file)?, was_there: false })
        }
        Code::Done | Code::Check => Err(Failure::usage(format!("{text}: this run records no requests"))),
        code => Err(Failure::new(code, anyhow::anyhow!("`vramlab predict {text}`: {problem}"))),
    }
}

/// Passes on what a run tells, and returns its error.
fn passed_on(told: impl Read, ui: &Ui) -> String {
    let mut problem = String::new();
    for line in BufReader::new(told).lines().map_while(std::io::Result::ok) {
        match line.strip_prefix("error: ") {
            Some(error) => problem = error.to_string(),
            // What follows an error belongs to it.
            None if problem.is_empty() => ui.tell(line),
            None => {}
        }
    }
    problem
}

fn host(error: std::io::Error) -> Failure {
    Failure::new(Code::Device, error)
}
