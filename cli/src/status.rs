//! Status of a running training, in a small file that `vramlab watch` reads.
//!
//! There is one file per process in a directory of the user's. It is replaced whole, at most five times a second, and removed at the end. A run of
//! less than a fifth of a second writes none. A status that cannot be written does not stop a training: then there is nothing to watch.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::forensics::Leak;
use lab::results::{ByCategory, DeviceInfo, RingBytes, RunStatus, Watched, by_category};
use lab::training::Progress;
use memcore::Device;
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Result};
use crate::whole_file::WholeFile;

/// Environment variable that names another directory.
const DIRECTORY: &str = "VRAMLAB_RUNTIME_DIR";
/// Time between two writes.
const PERIOD: Duration = Duration::from_millis(200);
/// Age after which a silent process counts as dead, on systems where one cannot ask whether it lives.
const SILENCE: Duration = Duration::from_secs(120);
/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the directory of the files: `$VRAMLAB_RUNTIME_DIR`, or `vramlab` in `$XDG_RUNTIME_DIR`, or a temporary directory named after the user.
pub(crate) fn directory() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(DIRECTORY)
        .or_else(|| set("XDG_RUNTIME_DIR").map(|path| path.join("vramlab")))
        .unwrap_or_else(|| std::env::temp_dir().join(format!("vramlab-{}", user())))
}

/// Returns the number of the user who runs this; two users have different ones, whatever their environment says.
#[cfg(unix)]
fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric()).collect()
}

/// Refuses a directory in which others can put files: their contents would be shown, and our files could be read by the directory's owner.
///
/// # Errors
/// What is wrong with it, or the system's error.
#[cfg(unix)]
fn check_own(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(directory)?;
    let problem = if !metadata.is_dir() {
        "is not a directory"
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "can be written by other users"
    } else {
        return Ok(());
    };
    Err(std::io::Error::other(problem))
}

#[cfg(not(unix))]
fn check_own(directory: &Path) -> std::io::Result<()> {
    fs::metadata(directory).map(drop)
}

/// Writes the status of this process.
pub(crate) struct Publisher {
    path: PathBuf,
    status: RunStatus,
    last: Instant,
    written: bool,
    /// True after a write failed: no further one is tried.
    silent: bool,
}

impl Publisher {
    /// Makes the publisher of a training that begins now.
    pub(crate) fn new(model: &str, device: &DeviceInfo) -> Self {
        let status = RunStatus {
            schema: RunStatus::SCHEMA.into(),
            pid: std::process::id(),
            model: model.into(),
            device: device.clone(),
            started_ms: now_ms(),
            updated_ms: 0,
            step: 0,
            steps: 0,
            loss: None,
            rings: RingBytes::default(),
            by_category: ByCategory::new(),
            peak_bytes: 0,
            leak: None,
        };
        let path = path_of(std::process::id());
        Self { path, status, last: Instant::now(), written: false, silent: false }
    }

    pub(crate) fn step(&mut self, device: &Device, progress: &Progress, leak: Option<&Leak>) {
        if self.silent || self.last.elapsed() < PERIOD {
            return;
        }
        let (held, peak_bytes) = device.with_ledger(|ledger| {
            let usage = ledger.usage();
            (*usage.by_category(), usage.peak_bytes())
        });
        let status = &mut self.status;
        (status.updated_ms, status.peak_bytes) = (now_ms(), peak_bytes);
        (status.step, status.steps, status.loss) = (progress.done, progress.steps, progress.loss);
        (status.rings, status.by_category) = ((&device.rings()).into(), by_category(&held));
        status.leak = leak.cloned();
        self.silent = write(&self.path, &self.status).is_err();
        self.written |= !self.silent;
        self.last = Instant::now();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if self.written {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

fn write(path: &Path, status: &impl Serialize) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    make_private(directory)?;
    check_own(directory)?;
    let mut file = WholeFile::beside(path)?;
    file.file().write_all(&serde_json::to_vec(status)?)?;
    file.appear(path)
}

/// Makes a directory that only its owner may enter.
fn make_private(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Statuses of watched trainings of PyTorch, shown to other terminals; they are removed at the end.
#[derive(Default)]
pub(crate) struct Guests {
    /// By process, when it told what was shown last.
    shown: BTreeMap<u32, u64>,
}

impl Guests {
    /// Shows what is new.
    pub(crate) fn show(&mut self, told: &[Watched]) {
        for one in told {
            // A status that cannot be written does not matter to the training.
            if self.shown.insert(one.pid, one.updated_ms) != Some(one.updated_ms) {
                let _ = write(&path_of(one.pid), one);
            }
        }
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        for pid in self.shown.keys() {
            let _ = fs::remove_file(path_of(*pid));
        }
    }
}

fn path_of(pid: u32) -> PathBuf {
    directory().join(format!("{pid}.json"))
}

/// The trainings that run, by process number.
#[derive(Default)]
pub(crate) struct Running {
    /// Those of this program.
    pub runs: Vec<RunStatus>,
    /// Those of PyTorch that are watched.
    pub watched: Vec<Watched>,
}

/// Returns the statuses of live processes, by process number. Files of dead ones are removed; unreadable files are left out.
///
/// # Errors
/// A directory in which others can put files.
pub(crate) fn running() -> Result<Running> {
    let directory = directory();
    let mut running = Running::default();
    let Ok(entries) = fs::read_dir(&directory) else { return Ok(running) };
    check_own(&directory).map_err(|problem| {
        let name = directory.display();
        Failure::usage(format!("{name}: {problem}; no status is read from there ({DIRECTORY} names another directory)"))
    })?;
    for path in entries.flatten().map(|entry| entry.path()) {
        match read(&path) {
            Some(Status::Own(run)) => running.runs.push(*run),
            Some(Status::OfPytorch(watched)) => running.watched.push(*watched),
            None => {}
        }
    }
    running.runs.sort_by_key(|run| run.pid);
    running.watched.sort_by_key(|run| run.pid);
    Ok(running)
}

/// Fields that are read before the rest: the file of a dead process may hold anything.
#[derive(Deserialize)]
struct Head {
    schema: String,
    #[serde(default)]
    updated_ms: u64,
}

/// Status of either kind.
enum Status {
    Own(Box<RunStatus>),
    OfPytorch(Box<Watched>),
}

fn read(path: &Path) -> Option<Status> {
    let pid: u32 = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
    // Checked before it is opened: opening a pipe would wait for a writer. A link may point anywhere.
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let head: Head = serde_json::from_str(&text).ok()?;
    let is_own = head.schema == RunStatus::SCHEMA;
    if !is_own && head.schema != Watched::SCHEMA {
        return None;
    }
    if is_alive(pid, head.updated_ms) {
        return match is_own {
            true => serde_json::from_str(&text).ok().map(|run| Status::Own(Box::new(run))),
            false => serde_json::from_str(&text).ok().map(|run| Status::OfPytorch(Box::new(run))),
        };
    }
    let _ = fs::remove_file(path);
    None
}

fn is_alive(pid: u32, updated_ms: u64) -> bool {
    if cfg!(target_os = "linux") {
        Path::new("/proc").join(pid.to_string()).exists()
    } else {
        now_ms().saturating_sub(updated_ms) < SILENCE.as_millis() as u64
    }
}
