//! Folders of runs whose program and keeper were both killed: the next run removes them.
//!
//! A run holds a lock on its folder, and so does its keeper, which inherits it. A file in the folder says that this is so: folders of releases
//! without locks are left alone.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, statat};

use super::protect::remove_folder;

/// Beginning of the name of a run's folder.
pub(super) const PREFIX: &str = "vramlab-rehearsal-";

/// File of a folder that says that whoever uses the folder holds a lock on it.
const MARK: &str = "held";

/// Locks a run's folder until what this returns is dropped, here and in processes that were forked.
pub(super) fn hold(folder: &Path) -> std::io::Result<File> {
    let held = open(folder)?;
    // On a file system without locks there is no mark, and the folder is never taken for one that was left.
    if lock(&held) {
        fs::write(folder.join(MARK), "")?;
    }
    Ok(held)
}

/// Removes this user's folders of runs that nobody uses any more.
pub(super) fn remove_left(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if is_of_a_run(&entry.file_name()) && is_left(&entry.path()).unwrap_or(false) {
            remove_folder(&entry.path());
        }
    }
}

fn is_of_a_run(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

fn is_left(folder: &Path) -> std::io::Result<bool> {
    let opened = open(folder)?;
    let mark = statat(&opened, MARK, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_marked = FileType::from_raw_mode(mark.st_mode) == FileType::RegularFile;
    let is_own = fstat(&opened)?.st_uid == rustix::process::geteuid().as_raw();
    Ok(is_marked && is_own && lock(&opened))
}

/// Opens a folder itself, not what a link names.
fn open(folder: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(folder, flags, Mode::empty())?))
}

fn lock(opened: &File) -> bool {
    opened.try_lock().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_folders_that_nobody_holds_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let names = ["vramlab-rehearsal-used", "vramlab-rehearsal-left", "vramlab-rehearsal-old", "other"];
        names.iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        let used = hold(&at(names[0])).unwrap();
        drop(hold(&at(names[1])).unwrap());
        drop(hold(&at(names[3])).unwrap());
        fs::create_dir(at(names[1]).join("layers")).unwrap();
        std::os::unix::fs::symlink("other", at("vramlab-rehearsal-link")).unwrap();
        remove_left(place.path());
        let is_there = |name: &&str| at(name).exists();
        assert_eq!(names.iter().map(is_there).collect::<Vec<_>>(), [true, false, true, true]);
        assert!(is_there(&"vramlab-rehearsal-link"));
        drop(used);
        remove_left(place.path());
        assert!(!is_there(&names[0]));
    }
}
