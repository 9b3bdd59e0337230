//! What a running training says of itself, in a small file that `vramlab monitor` reads.
//!
//! One file per process in a directory of the user's, replaced whole, at most five times a second, removed at the end. A run of less than a fifth
//! of a second writes none. That it cannot be written is no reason to stop a training: then there is nothing to watch.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::forensics::Leak;
use lab::results::DeviceInfo;
use lab::training::Progress;
use memcore::Device;
use serde_json::{Value, json};

use crate::account::{by_category, rings};
use crate::exit::{Failure, Result};
use crate::whole_file::WholeFile;

/// Names the directory instead of the usual one.
const DIRECTORY: &str = "VRAMLAB_RUNTIME_DIR";
/// Between two writings.
const PERIOD: Duration = Duration::from_millis(200);
/// Where one cannot ask whether a process lives: its silence after which it is taken for dead.
const SILENCE: Duration = Duration::from_secs(120);
/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Where the files are: `$VRAMLAB_RUNTIME_DIR`, or `vramlab` in `$XDG_RUNTIME_DIR`, or a directory named after the user among the temporary ones.
pub(crate) fn directory() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(DIRECTORY)
        .or_else(|| set("XDG_RUNTIME_DIR").map(|path| path.join("vramlab")))
        .unwrap_or_else(|| std::env::temp_dir().join(format!("vramlab-{}", user())))
}

/// The number of the user who runs this; two users have different ones, whatever their environment says.
#[cfg(unix)]
fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric()).collect()
}

/// Refuses a directory in which others can put files: what stands in them would be shown, and what we write could be read by whoever made it.
///
/// # Errors
/// What is wrong with it, or the system's error.
#[cfg(unix)]
fn check_own(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(directory)?;
    let problem = if !metadata.is_dir() {
        "is no directory"
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
    about: Value,
    last: Instant,
    written: bool,
    /// It failed once: nobody will read.
    silent: bool,
}

impl Publisher {
    /// Of a training that begins now.
    pub(crate) fn new(model: &str, device: &DeviceInfo) -> Self {
        let about = json!({
            "schema": "vramlab-status-1",
            "pid": std::process::id(),
            "model": model,
            "device": json!(device),
            "started_ms": now_ms(),
        });
        let path = directory().join(format!("{}.json", std::process::id()));
        Self { path, about, last: Instant::now(), written: false, silent: false }
    }

    /// A step is done.
    pub(crate) fn step(&mut self, device: &Device, progress: &Progress, leak: Option<&Leak>) {
        if self.silent || self.last.elapsed() < PERIOD {
            return;
        }
        let usage = device.with_ledger(|ledger| {
            let usage = ledger.usage();
            (*usage.by_category(), usage.peak_bytes())
        });
        let mut status = self.about.clone();
        status["updated_ms"] = now_ms().into();
        status["step"] = progress.done.into();
        status["steps"] = progress.steps.into();
        status["loss"] = progress.loss.into();
        status["rings"] = rings(&device.rings());
        status["by_category"] = by_category(&usage.0);
        status["peak_bytes"] = usage.1.into();
        status["leak"] = json!(leak);
        self.silent = write(&self.path, &status).is_err();
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

fn write(path: &Path, status: &Value) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    make_private(directory)?;
    check_own(directory)?;
    let mut file = WholeFile::beside(path)?;
    file.file().write_all(status.to_string().as_bytes())?;
    file.appear(path)
}

/// A directory that only its owner may enter.
fn make_private(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// The statuses of the processes that are alive, by process number. Files of dead ones are removed; what cannot be read is left out.
///
/// # Errors
/// A directory in which others can put files.
pub(crate) fn running() -> Result<Vec<Value>> {
    let directory = directory();
    let Ok(entries) = fs::read_dir(&directory) else { return Ok(Vec::new()) };
    check_own(&directory).map_err(|problem| {
        let name = directory.display();
        Failure::usage(format!("{name}: {problem}; no status is read from there ({DIRECTORY} names another directory)"))
    })?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut statuses: Vec<Value> = files.filter_map(|path| read(&path)).collect();
    statuses.sort_by_key(|status| status["pid"].as_u64());
    Ok(statuses)
}

fn read(path: &Path) -> Option<Value> {
    let pid: u32 = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
    // Looked at before it is opened: opening a pipe would wait for a writer. A link may point anywhere.
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    let status: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    if status["schema"] != "vramlab-status-1" {
        return None;
    }
    if is_alive(pid, status["updated_ms"].as_u64().unwrap_or(0)) {
        return Some(status);
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
