//! A folder that several rehearsals may use at once, of which the one that made it removes it again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lab_base::files::is_at;

/// Attempts to take a folder that another run is about to remove, and the time between them.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// A folder in use. Each user has a shared lock on it, and a folder is removed under an exclusive one: a rehearsal would see a removed folder as one in which
/// nothing can be made, since it mounted it.
#[derive(Debug)]
pub(super) struct HeldFolder {
    path: PathBuf,
    folder: File,
    is_made: bool,
}

impl HeldFolder {
    /// Takes a folder, and makes it if it is missing. `None` if it cannot be made or opened.
    pub(super) fn take(path: &Path) -> Option<Self> {
        for _ in 0..ATTEMPTS {
            let is_made = fs::create_dir(path).is_ok();
            let Ok(folder) = File::open(path) else { return None };
            // Who is about to remove it has the lock, or had it when this folder was opened.
            if folder.try_lock_shared().is_ok() && is_at(&folder, path).unwrap_or(false) {
                return Some(Self { path: path.into(), folder, is_made });
            }
            thread::sleep(PAUSE);
        }
        None
    }
}

impl Drop for HeldFolder {
    fn drop(&mut self) {
        if self.is_made && self.folder.try_lock().is_ok() {
            // One that is not empty stays.
            let _filled = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_another_run_uses_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let maker = HeldFolder::take(&path).unwrap();
        let user = HeldFolder::take(&path).unwrap();
        drop(maker);
        assert!(path.is_dir(), "another run has mounted it");
        drop(user);
        assert!(path.is_dir(), "who did not make it does not remove it");
    }

    #[test]
    fn an_empty_folder_is_removed_by_who_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, filled) = (folder.path().join("empty"), folder.path().join("filled"));
        let held = [&empty, &filled].map(|path| HeldFolder::take(path).unwrap());
        fs::write(filled.join("kept"), "").unwrap();
        drop(held);
        assert!(!empty.exists() && filled.join("kept").exists());
        assert!(HeldFolder::take(&folder.path().join("missing/below")).is_none());
    }
}
