//! Which changes the filter lets through where no namespace protects the user's files.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::descendants::is_descendant;
use super::lookup::Target;
use super::way::Wanted;

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

impl Policy {
    pub(super) fn from_wanted(wanted: &Wanted) -> Self {
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
            if is_disk(found, &target.path) {
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
        if target.path.starts_with("/sys") || is_device(&target.path) {
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

/// True for what holds the bytes of files: files, disks, and what reads and writes disks by commands, or the machine's memory.
pub(super) fn holds_bytes(target: &Target) -> bool {
    target.found.as_ref().is_some_and(|found| found.is_file() || is_disk(found, &target.path))
}

/// True for a disk, by its kind or its name.
pub(super) fn is_disk(found: &Metadata, path: &Path) -> bool {
    let named = || path.strip_prefix("/dev").is_ok_and(|name| is_named_as_disk(&name.to_string_lossy()));
    found.file_type().is_block_device() || found.file_type().is_char_device() && named()
}

/// True for what all users of the machine share: devices, but for shared memory, queues and terminals, which are the run's own if they are new.
fn is_device(path: &Path) -> bool {
    let own = ["/dev/shm", "/dev/mqueue", "/dev/pts"];
    path.starts_with("/dev") && !own.iter().any(|folder| path.starts_with(folder))
}

/// True for names in `/dev` of character devices that write to disks or to the machine's memory.
fn is_named_as_disk(name: &str) -> bool {
    let numbered = ["sg", "nvme", "ng"].iter().filter_map(|kind| name.strip_prefix(kind));
    let is_numbered = numbered.into_iter().any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    is_numbered || name.starts_with("bsg/") || ["mem", "kmem", "port"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::super::lookup::Named;
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
        let policy = Policy::from_wanted(&wanted);
        fs::write(at("tmp/old/new"), "").unwrap();
        fs::write(at("tmp/work/new"), "").unwrap();
        let target = |name: &str, follow| Named::new(1, root.clone(), name.as_bytes()).target(follow).unwrap();
        let may = |name: &str| policy.allows(&target(name, true));
        for name in ["run/anything", "cache/file", "cache/new", "tmp/new", "tmp/old/new", "tmp/old/other"] {
            assert!(may(name), "{name}");
        }
        for name in ["tmp/file", "tmp/old", "tmp/old/file", "tmp/work/file", "tmp/work/new", "home/file", "home/none"] {
            assert!(!may(name), "{name}");
        }
        assert!(!may("tmp/link") && !may("tmp/nowhere"), "where a link leads decides");
        let link = target("tmp/link", false);
        assert_eq!((link.path, link.found.unwrap().is_symlink()), (at("tmp/link"), true));
    }

    #[test]
    fn devices_stay_as_they_are() {
        for path in ["/dev/null", "/dev", "/dev/new", "/dev/input/event0"] {
            assert!(is_device(Path::new(path)), "{path}");
        }
        for path in ["/dev/shm/new", "/dev/pts/3", "/devices", "/home/dev"] {
            assert!(!is_device(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn commands_to_disks_are_told_by_their_names() {
        for name in ["sg0", "nvme0", "ng0n1", "bsg/0:0:0:0", "mem", "port"] {
            assert!(is_named_as_disk(name), "{name}");
        }
        for name in ["null", "sgx_enclave", "tty0", "nvidia0", "nvme-fabrics", "memory", "pts/0"] {
            assert!(!is_named_as_disk(name), "{name}");
        }
    }
}
