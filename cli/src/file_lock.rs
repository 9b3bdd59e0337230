//! A lock that lets one process at a time change a file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use lab::files::is_at;

use crate::exit::{Code, Failure, Result};
use crate::interrupt;

/// Time between two attempts to take the lock.
const PERIOD: Duration = Duration::from_millis(5);

/// Held while a file is read, changed and replaced; other processes that change it wait.
///
/// The lock is the system's, on a sibling `.NAME.lock`: the file itself is replaced by renaming, which would leave a lock on the old one. The lock
/// ends with the process in any case, so a sibling left by a killed process blocks nobody.
pub(crate) struct FileLock {
    path: PathBuf,
    _locked: File,
}

impl FileLock {
    /// Waits until no other process changes `file`, which need not exist.
    ///
    /// # Errors
    /// With code 2, a sibling that cannot be made or locked; with code 130, Ctrl-C while waiting.
    pub(crate) fn acquire(file: &Path) -> Result<Self> {
        let path = sibling(file);
        loop {
            let cannot = || format!("cannot lock {} with {}", file.display(), path.display());
            let locked = locked(&path).with_context(cannot).map_err(|error| Failure::new(Code::Usage, error))?;
            match locked {
                Some(locked) => return Ok(Self { path, _locked: locked }),
                None if interrupt::asked() => return Err(lab::Error::Interrupted.into()),
                None => std::thread::sleep(PERIOD),
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removed while still locked: a waiting process then sees that its file is no longer the one in the folder. On other systems an open file
        // cannot be removed in this way.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the lock's path, next to the target of `file`, so that all links to the file share one lock.
fn sibling(file: &Path) -> PathBuf {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".lock");
    target.with_file_name(name)
}

/// Returns the locked file; `None` while another process holds the lock, or if the file was removed before the lock was taken.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(is_at(&file, path)?.then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("runs.json");
        // As a killed process leaves it.
        fs::write(sibling(&file), "").unwrap();
        let held = FileLock::acquire(&file).unwrap();
        assert!(locked(&sibling(&file)).unwrap().is_none());
        drop(held);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), usize::from(!cfg!(unix)));
        assert!(locked(&sibling(&file)).unwrap().is_some());
    }

    #[test]
    fn changes_of_several_do_not_get_lost() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("count");
        fs::write(&file, "0").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _lock = FileLock::acquire(&file).unwrap();
                        let count: u32 = fs::read_to_string(&file).unwrap().parse().unwrap();
                        fs::write(&file, (count + 1).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "200");
    }
}
