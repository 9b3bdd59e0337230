//! Watches a training of PyTorch that runs for real: a command is started with a watch inside each of its Pythons, which tells of it by files in
//! a folder. The watch is the package for Python's (`python/vramlab/_watching`).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use lab_base::error::{Error, Result};
use lab_results::command::quoted;
use lab_results::{Looked, PredictedPeaks, SnapshotResult, WatchResult, Watched};
use lab_traces::snapshot::Snapshot;
use tempfile::TempDir;

/// Files of the watch, a package of Python.
const PACKAGE: [(&str, &str); 7] = [
    ("__init__.py", include_str!("../../python/vramlab/_watching/__init__.py")),
    ("growth.py", include_str!("../../python/vramlab/_watching/growth.py")),
    ("history.py", include_str!("../../python/vramlab/_watching/history.py")),
    ("kept.py", include_str!("../../python/vramlab/_watching/kept.py")),
    ("meter.py", include_str!("../../python/vramlab/_watching/meter.py")),
    ("start.py", include_str!("../../python/vramlab/_watching/start.py")),
    ("tell.py", include_str!("../../python/vramlab/_watching/tell.py")),
];

/// What Python imports at its start: the watch, then the `sitecustomize` that would have been there without it. An error of the watch does not
/// reach the script.
const START: &str = "import os
_here = os.path.dirname(os.path.abspath(__file__))
try:
    import importlib.util as _util, sys as _sys
    _spec = _util.spec_from_file_location(
        '_vramlab_watching', os.path.join(_here, 'watching', '__init__.py'),
        submodule_search_locations=[os.path.join(_here, 'watching')])
    _sys.modules['_vramlab_watching'] = _util.module_from_spec(_spec)
    _spec.loader.exec_module(_sys.modules['_vramlab_watching'])
    from _vramlab_watching import start as _start
    _start.run(_here)
except Exception:
    _start = None
if _start is not None:
    _start.users_own(_here)
";

/// What a watched process says where there is no card.
const WITHOUT_CARD: [&str; 2] = ["this PyTorch is built without CUDA", "PyTorch sees no CUDA device"];

/// Largest status that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A command that is watched.
pub struct Watching {
    command: Vec<OsString>,
    folder: TempDir,
    child: Child,
}

impl Watching {
    /// Starts a command. `prepare` may change how, before it is started.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a command that cannot be started; a folder for temporary files that cannot be used.
    pub fn start(command: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<Self> {
        let cannot = |error: io::Error| Error::host("the folder for temporary files", error.to_string());
        let (name, words) = command.split_first().ok_or_else(|| Error::usage("--", "a command must follow"))?;
        let folder = tempfile::Builder::new().prefix("vramlab-watch-").tempdir().map_err(cannot)?;
        let package = folder.path().join("watching");
        fs::create_dir(&package).and_then(|()| fs::create_dir(folder.path().join("told"))).map_err(cannot)?;
        fs::write(folder.path().join("sitecustomize.py"), START).map_err(cannot)?;
        PACKAGE.iter().try_for_each(|(name, text)| fs::write(package.join(name), text)).map_err(cannot)?;
        let mut process = Command::new(name);
        let before = std::env::var_os("PYTHONPATH").filter(|value| !value.is_empty());
        let paths = std::iter::once(folder.path().to_path_buf())
            .chain(before.iter().flat_map(|paths| std::env::split_paths(paths).collect::<Vec<_>>()));
        let paths = std::env::join_paths(paths).map_err(|error| Error::usage("PYTHONPATH", error.to_string()))?;
        process.args(words).env("PYTHONPATH", paths);
        prepare(&mut process);
        let child = process
            .spawn()
            .map_err(|error| Error::usage(name.to_string_lossy(), format!("cannot be started: {error}")))?;
        Ok(Self { command: command.to_vec(), folder, child })
    }

    /// The command's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the command ended; `None` while it runs.
    ///
    /// # Errors
    /// A process that cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|error| Error::host("the command", error.to_string()))
    }

    /// What its processes told last, by rank.
    pub fn told(&self) -> Vec<Watched> {
        let entries = fs::read_dir(self.told_in()).into_iter().flatten().flatten();
        let mut all: Vec<Watched> = entries.filter_map(|entry| read(&entry.path())).collect();
        all.sort_by_key(|one| (one.rank, one.pid));
        all
    }

    fn told_in(&self) -> PathBuf {
        self.folder.path().join("told")
    }

    /// True if a Python of the command was watched, whatever it did.
    pub fn saw_python(&self) -> bool {
        let entries = fs::read_dir(self.told_in()).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().extension().is_some_and(|extension| extension == "python"))
    }

    /// Puts the whole together when the command has ended. If memory ran out, and the command failed, the snapshot is moved to `keep`.
    ///
    /// # Errors
    /// Why there are no figures, as [`Error::Host`]; a snapshot that cannot be moved.
    pub fn result(&self, ended: ExitStatus, predicted: Option<PredictedPeaks>, keep: &Path) -> Result<WatchResult> {
        let all = self.told();
        let processes: Vec<Watched> = all.iter().filter(|one| one.has_figures()).cloned().collect();
        let words = |word: &OsString| word.to_string_lossy().into_owned();
        let mut result = WatchResult {
            command: self.command.iter().map(words).collect(),
            script_exit: exit_code(ended),
            processes,
            predicted,
            snapshot: None,
            kept: None,
        };
        let Some(fullest) = WatchResult::fullest(&result.processes).cloned() else {
            let why = all.iter().find_map(|one| one.problem.clone()).map(|why| self.with_a_way_out(why));
            return Err(Error::host("watch", why.unwrap_or_else(|| self.why_nothing(!all.is_empty()))));
        };
        if let Some(written) = fullest.snapshot.as_ref().map(PathBuf::from).filter(|path| path.is_file()) {
            let mut name = format!("step {} of {}", fullest.snapshot_step, fullest.script);
            if result.ran_out() {
                move_to(&written, keep)?;
                name = keep.display().to_string();
                result.kept = Some(name.clone());
            }
            let path = if result.ran_out() { keep } else { &written };
            // The figures stand without it.
            if let Ok(snapshot) = Snapshot::open(path) {
                let device = Some(fullest.device).filter(|device| *device < snapshot.devices()).unwrap_or(0);
                result.snapshot = Some(SnapshotResult::new(name, &snapshot, device, &Looked::default()));
            }
        }
        Ok(result)
    }

    /// Adds to what a process said the command that answers without a card, if it is a card that lacks.
    fn with_a_way_out(&self, why: String) -> String {
        if !WITHOUT_CARD.contains(&why.as_str()) {
            return why;
        }
        let command: Vec<String> = self.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        format!(
            "{why}; what it takes on a card that is not here: vramlab predict --gpu rtx4090 -- {}",
            command.join(" ")
        )
    }

    fn why_nothing(&self, has_torch: bool) -> String {
        match (has_torch, self.saw_python()) {
            (true, _) => "the training ended before its first step on a card".into(),
            (false, true) => "no Python of the command imported torch".into(),
            (false, false) => "the command started no Python that could be watched: -I, -E and -S keep it from that, \
                               and so does a command that replaces PYTHONPATH"
                .into(),
        }
    }
}

/// Asks a watched process for a snapshot of its next steps, to be written to `path`.
///
/// # Errors
/// The system's.
pub fn ask(watched: &Watched, path: &Path) -> io::Result<()> {
    let folder = Path::new(&watched.folder);
    let part = folder.join(format!("{}.asked", watched.pid));
    fs::write(&part, path.as_os_str().as_encoded_bytes())?;
    fs::rename(part, folder.join(format!("{}.ask", watched.pid)))
}

/// Reads what a process told; `None` for another file, or one that is too large.
pub fn read(path: &Path) -> Option<Watched> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if path.extension()? != "json" || !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    let told: Watched = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (told.schema == Watched::SCHEMA).then_some(told)
}

/// Moves a file, also to another file system.
fn move_to(from: &Path, to: &Path) -> Result<()> {
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    let cannot = |error: io::Error| Error::usage(to.display().to_string(), format!("cannot be written: {error}"));
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
    let mut source = fs::File::open(from).map_err(cannot)?;
    io::copy(&mut source, &mut part).map_err(cannot)?;
    part.persist(to).map_err(|error| cannot(error.error))?;
    Ok(())
}

/// The exit code of a process; 128 plus the signal if a signal ended it.
pub fn exit_code(ended: ExitStatus) -> i32 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&ended) {
        return 128 + signal;
    }
    ended.code().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_watch_is_in_the_folder() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/vramlab/_watching");
        let names = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".py")).collect();
        names.sort();
        assert_eq!(names, PACKAGE.map(|(name, _)| name));
    }

    #[test]
    fn only_statuses_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        assert_eq!(read(&file("1.json", r#"{"schema": "vramlab-watched-1", "pid": 1, "steps": 3}"#)).unwrap().steps, 3);
        for (name, text) in [("2.json", "{"), ("3.json", r#"{"schema": "x"}"#), ("4.pickle", "{}"), ("5.json", "[]")] {
            assert_eq!(read(&file(name, text)), None, "{name}");
        }
        assert_eq!(read(folder.path()), None);
    }
}
