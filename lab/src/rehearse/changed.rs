//! What really changed in the folders that a run must leave as they are. The protection promises nothing; this looks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::protect::descendants;

/// Maximum time for the look before a run, which delays its start, and for the one after it.
const TIME_BEFORE: Duration = Duration::from_millis(150);
const TIME_AFTER: Duration = Duration::from_secs(5);

/// Maximum number of changes that are listed.
const MAX_CHANGES: usize = 1000;

/// The system's clock of files may be this much behind.
const CLOCK: Duration = Duration::from_millis(20);

/// What is compared of an entry. The time of the last change counts every change of contents, mode, owner, times and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    inode: (u64, u64),
    mode: u32,
    owner: (u32, u32),
    /// Size, and times of the last write and the last change; nothing for a folder, whose entries are compared one by one.
    contents: Option<(u64, [i64; 4])>,
}

impl Seen {
    fn from_metadata(found: &Metadata) -> Self {
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Self {
            inode: (found.dev(), found.ino()),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            contents: (!found.is_dir()).then_some((found.len(), times)),
        }
    }
}

/// The folders before a run.
#[derive(Debug)]
pub(super) struct Before {
    roots: Vec<PathBuf>,
    skipped: Vec<PathBuf>,
    entries: HashMap<PathBuf, Seen>,
    complete: bool,
    time: SystemTime,
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Each changed path, with what happened to it.
    pub(super) paths: BTreeMap<PathBuf, &'static str>,
    /// Those of them that a program outside of the run has open for writing, with its name.
    pub(super) by_others: BTreeMap<PathBuf, String>,
    /// Number of changes that are not listed.
    pub(super) beyond: u64,
    /// True if not everything could be looked at in time.
    pub(super) in_part: bool,
}

impl Before {
    /// Looks at folders before a run. `skipped` are folders in them that may change.
    pub(super) fn look(roots: Vec<PathBuf>, skipped: Vec<PathBuf>) -> Self {
        let mut entries = HashMap::new();
        let mut note = |path: PathBuf, found: &Metadata| {
            entries.insert(path, Seen::from_metadata(found));
        };
        let complete = walk(&roots, &skipped, TIME_BEFORE, &mut note);
        Self { roots, skipped, entries, complete, time: SystemTime::now() - CLOCK }
    }

    /// Returns the folders that are looked at.
    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// True if this user, who is not root, may be able to write files of other users or groups there.
    pub(super) fn has_files_of_others(&self) -> bool {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let is_one = |path: &PathBuf, seen: &Seen| {
            let is_link = seen.mode & libc::S_IFMT == libc::S_IFLNK;
            let may_be_written = seen.owner.0 == own.0 || seen.mode & 0o022 != 0;
            seen.owner != own && may_be_written && !is_link && !self.roots.contains(path)
        };
        own.0 != 0 && self.entries.iter().any(|(path, seen)| is_one(path, seen))
    }

    /// Looks again. `more` are paths outside of the folders that are looked at, too.
    pub(super) fn changes(&self, more: &[PathBuf]) -> Changed {
        let mut found = Changed::default();
        let own: Vec<(u64, u64)> = own_outputs();
        let mut left: HashMap<&Path, Seen> = self.entries.iter().map(|(path, seen)| (path.as_path(), *seen)).collect();
        // A root may lie in another one.
        let mut looked_at = HashSet::new();
        let mut note = |path: PathBuf, metadata: &Metadata| {
            if !looked_at.insert(path.clone()) {
                return;
            }
            let now = Seen::from_metadata(metadata);
            let what = match left.remove(path.as_path()) {
                Some(before) if before == now => return,
                Some(_) => "changed",
                None if self.complete => "added",
                None if !self.is_recent(metadata) => return,
                None if metadata.is_dir() => "added or changed, or entries of it",
                None => "added or changed",
            };
            if !own.contains(&now.inode) {
                found.add(path, what);
            }
        };
        let complete = walk(&self.roots, &self.skipped, TIME_AFTER, &mut note);
        if complete {
            for path in left.into_keys().map(Path::to_path_buf) {
                found.add(path, "removed");
            }
        }
        for path in more.iter().filter(|path| !self.roots.iter().any(|root| path.starts_with(root))) {
            let recent = fs::symlink_metadata(path).is_ok_and(|metadata| self.is_recent(&metadata));
            if recent && !self.skipped.iter().any(|skipped| path.starts_with(skipped)) {
                found.add(path.clone(), "changed");
            }
        }
        found.in_part = !complete;
        found.by_others = written_by_others(&found.paths);
        found
    }

    fn is_recent(&self, found: &Metadata) -> bool {
        let since = self.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (found.ctime(), found.ctime_nsec()) >= (since.as_secs() as i64, i64::from(since.subsec_nanos()))
    }
}

impl Changed {
    fn add(&mut self, path: PathBuf, what: &'static str) {
        if self.paths.len() < MAX_CHANGES {
            self.paths.insert(path, what);
        } else {
            self.beyond += 1;
        }
    }

    /// True if something changed that no other program is known to have written.
    pub(super) fn is_unexplained(&self) -> bool {
        self.beyond > 0 || self.paths.keys().any(|path| !self.by_others.contains_key(path))
    }
}

/// Calls `note` for all entries, those near the roots first. False if the time was over before the end.
fn walk(roots: &[PathBuf], skipped: &[PathBuf], most: Duration, note: &mut dyn FnMut(PathBuf, &Metadata)) -> bool {
    let start = Instant::now();
    let mut folders = std::collections::VecDeque::new();
    for root in roots {
        match fs::symlink_metadata(root) {
            Ok(found) if found.is_dir() => {
                note(root.clone(), &found);
                folders.push_back(root.clone());
            }
            Ok(found) => note(root.clone(), &found),
            Err(_) => {}
        }
    }
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if skipped.contains(&path) {
                continue;
            }
            // The entry may be gone.
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push_back(path.clone());
            }
            note(path, &found);
        }
        if start.elapsed() > most {
            return folders.is_empty();
        }
    }
    true
}

/// Returns the files to which this program's own output goes.
fn own_outputs() -> Vec<(u64, u64)> {
    let (out, errors) = (std::io::stdout(), std::io::stderr());
    let of = |open: std::os::fd::BorrowedFd| rustix::fs::fstat(open).ok().map(|found| (found.st_dev, found.st_ino));
    [of(out.as_fd()), of(errors.as_fd())].into_iter().flatten().collect()
}

/// Finds programs outside of the run that have one of these files open for writing, as `tee` has.
fn written_by_others(paths: &BTreeMap<PathBuf, &'static str>) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    if paths.is_empty() {
        return found;
    }
    let of_the_run = descendants();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if of_the_run.contains(&pid) {
            continue;
        }
        for open in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(open.path()) else { continue };
            if paths.contains_key(&target) && writes(&process.path(), &open.file_name().to_string_lossy()) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                found.insert(target, format!("{} (process {pid})", name.trim_end()));
            }
        }
    }
    found
}

/// True if a process opened this descriptor for writing.
fn writes(process: &Path, descriptor: &str) -> bool {
    let info = fs::read_to_string(process.join("fdinfo").join(descriptor)).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0o3 != 0)
}

/// Returns the files and folders that a command names: words that are paths, and those behind `=`.
pub(super) fn named_in(command: &[std::ffi::OsString], working: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for word in command.iter().filter_map(|word| word.to_str()) {
        for text in [Some(word), word.split_once('=').map(|(_, value)| value)].into_iter().flatten() {
            let path = working.join(text).canonicalize();
            let path = path.ok().filter(|path| !text.is_empty() && !working.starts_with(path));
            if let Some(path) = path.filter(|path| !path.starts_with(working) && !found.contains(path)) {
                found.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn each_kind_of_change_is_seen_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("data/deep")).unwrap();
        fs::create_dir(at("skipped")).unwrap();
        for name in ["same", "written", "removed", "mode", "data/deep/touched", "replaced", "written-by-hand"] {
            fs::write(at(name), "before").unwrap();
        }
        let before = Before::look(vec![root.clone()], vec![at("skipped")]);
        assert_eq!(before.changes(&[]), Changed::default());
        std::thread::sleep(Duration::from_millis(30));
        fs::write(at("written"), "behind").unwrap();
        fs::remove_file(at("removed")).unwrap();
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        let times = fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        fs::File::options().write(true).open(at("data/deep/touched")).unwrap().set_times(times).unwrap();
        fs::remove_file(at("replaced")).unwrap();
        symlink("same", at("replaced")).unwrap();
        fs::write(at("skipped/inside"), "").unwrap();
        let open = fs::File::options().append(true).open(at("written-by-hand")).unwrap();
        std::io::Write::write_all(&mut &open, b"more").unwrap();
        let found = before.changes(&[]);
        let expected = [
            ("data/deep/touched", "changed"),
            ("mode", "changed"),
            ("removed", "removed"),
            ("replaced", "changed"),
            ("written", "changed"),
            ("written-by-hand", "changed"),
        ];
        assert_eq!(found.paths, expected.map(|(name, what)| (at(name), what)).into());
        assert!(!found.in_part && found.is_unexplained());
        assert_eq!(found.by_others.keys().collect::<Vec<_>>(), [&at("written-by-hand")], "this process has it open");
    }

    #[test]
    fn a_file_that_is_named_beside_its_folder_was_there_before() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::write(root.join("request.json"), "{}").unwrap();
        let before = Before::look(vec![root.clone(), root.join("request.json")], Vec::new());
        assert_eq!(before.changes(&[]), Changed::default());
    }

    #[test]
    fn paths_of_a_command_are_found_outside_of_the_working_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["work/inside", "out", "data"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let command = ["python", "train.py", "--out=../out", "../data", "inside", "..", "=", "--none=missing"];
        let found = named_in(&command.map(std::ffi::OsString::from), &root.join("work"));
        assert_eq!(found, [root.join("out"), root.join("data")]);
    }
}
