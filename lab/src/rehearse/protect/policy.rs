//! Which changes the filter lets through where no namespace protects the user's files.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::descendants::is_descendant;
use super::system::{path_of, place};
use super::way::Wanted;

/// Maximum number of links that are followed to a file that does not exist.
const MAX_LINKS: usize = 40;

/// What processes say of themselves. What else lies there are settings of the system.
const OF_PROCESSES: &str = "/proc";
const SETTINGS: &str = "/proc/sys";

/// The folders in which a run may write for real.
pub(super) struct Policy {
    /// The run's folder and the caches.
    open: Vec<PathBuf>,
    /// Folders for temporary files: what existed before the run stays.
    temporary: Vec<PathBuf>,
    working: PathBuf,
    /// When the run began, in seconds and nanoseconds.
    since: (i64, i64),
    /// The files to which this program's own output goes.
    outputs: Vec<(u64, u64)>,
}

/// An entry, or the place for a new one.
pub(super) struct Target {
    pub(super) path: PathBuf,
    found: Option<Metadata>,
}

impl Target {
    pub(super) fn exists(&self) -> bool {
        self.found.is_some()
    }

    /// True for files and disks.
    pub(super) fn holds_bytes(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.is_file() || found.file_type().is_block_device())
    }
}

impl Policy {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let since = wanted.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let of = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let canonical = |path: &PathBuf| path.canonicalize().ok();
        Self {
            open: [&wanted.run].into_iter().chain(&wanted.caches).filter_map(canonical).collect(),
            temporary: wanted.temporary.iter().filter_map(canonical).collect(),
            working: wanted.working.clone(),
            since: (since.as_secs() as i64, since.subsec_nanos().into()),
            outputs: ["/proc/self/fd/1", "/proc/self/fd/2"].into_iter().filter_map(of).collect(),
        }
    }

    /// Returns what a change of this path changes, as this process reaches it.
    pub(super) fn target(path: &Path, follow: bool) -> io::Result<Target> {
        let mut path = path.to_path_buf();
        for _ in 0..MAX_LINKS {
            match place(&path, follow) {
                Ok(open) => {
                    let open_path = path_of(open.as_fd());
                    let found = fs::metadata(&open_path).or_else(|_| fs::symlink_metadata(&open_path))?;
                    return Ok(Target { path: fs::read_link(&open_path)?, found: Some(found) });
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
            // A link to nothing is followed, because a file is made where it leads.
            match fs::read_link(&path) {
                Ok(target) if follow => path = parent(&path).join(target),
                _ => {
                    let folder = place(&parent(&path), true)?;
                    let folder = fs::read_link(path_of(folder.as_fd()))?;
                    return Ok(Target { path: folder.join(path.file_name().unwrap_or_default()), found: None });
                }
            }
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }

    /// True if a target may change.
    pub(super) fn allows(&self, target: &Target) -> bool {
        if let Some(found) = &target.found {
            // A file without a name is gone when it is closed.
            if found.nlink() == 0 || !target.path.is_absolute() {
                return true;
            }
            if self.outputs.contains(&(found.dev(), found.ino())) {
                return true;
            }
            if found.file_type().is_block_device() {
                return false;
            }
        }
        let longest = |folders: &[PathBuf]| {
            let around = folders.iter().filter(|folder| target.path.starts_with(folder));
            around.map(|folder| folder.components().count()).max().unwrap_or(0)
        };
        let working = if target.path.starts_with(&self.working) { self.working.components().count() } else { 0 };
        let (open, temporary) = (longest(&self.open), longest(&self.temporary));
        if open > working && open >= temporary {
            return true;
        }
        if let Ok(rest) = target.path.strip_prefix(OF_PROCESSES) {
            let process = rest.iter().next().and_then(|name| name.to_str()?.parse().ok());
            // The memory of another process would write for this one.
            return process.map_or(!target.path.starts_with(SETTINGS), is_descendant);
        }
        if target.path.starts_with("/sys") {
            return false;
        }
        if temporary <= working {
            return false;
        }
        target.found.as_ref().is_none_or(|found| self.is_new(found))
    }

    /// True if an entry was made since the run began. Without a time of birth, that of its last change counts: what is old does not change.
    fn is_new(&self, found: &Metadata) -> bool {
        let born = found.created().ok().and_then(|time: SystemTime| time.duration_since(UNIX_EPOCH).ok());
        let born = born.map(|time| (time.as_secs() as i64, i64::from(time.subsec_nanos())));
        born.unwrap_or((found.ctime(), found.ctime_nsec())) >= self.since
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => "/".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn new_files_may_change_in_open_folders_and_old_ones_nowhere_but_in_caches() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for folder in ["run", "cache", "tmp/old", "tmp/work", "home"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["cache/file", "tmp/file", "tmp/old/file", "tmp/work/file", "home/file"] {
            fs::write(at(file), "before").unwrap();
        }
        std::os::unix::fs::symlink("../home/file", at("tmp/link")).unwrap();
        std::os::unix::fs::symlink("../home/none", at("tmp/nowhere")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let wanted = Wanted {
            run: at("run"),
            layers: at("run/layers"),
            reached: Vec::new(),
            working: at("tmp/work"),
            caches: vec![at("cache")],
            temporary: vec![at("tmp")],
            since: SystemTime::now() - Duration::from_millis(20),
            offline: false,
        };
        let policy = Policy::of(&wanted);
        fs::write(at("tmp/old/new"), "").unwrap();
        fs::write(at("tmp/work/new"), "").unwrap();
        let may = |name: &str| policy.allows(&Policy::target(&at(name), true).unwrap());
        for name in ["run/anything", "cache/file", "cache/new", "tmp/new", "tmp/old/new", "tmp/old/other"] {
            assert!(may(name), "{name}");
        }
        for name in ["tmp/file", "tmp/old", "tmp/old/file", "tmp/work/file", "tmp/work/new", "home/file", "home/none"] {
            assert!(!may(name), "{name}");
        }
        assert!(!may("tmp/link") && !may("tmp/nowhere"), "where a link leads decides");
        let link = Policy::target(&at("tmp/link"), false).unwrap();
        assert_eq!((link.path, link.found.unwrap().is_symlink()), (at("tmp/link"), true));
    }
}
