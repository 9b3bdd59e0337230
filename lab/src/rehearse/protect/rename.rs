//! Renames that overlays refuse: of a folder from before the run, and from one overlay to another.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::whole_copy::copy_tree;

/// Renames an entry, or exchanges two; where the system would have them copied, copies them and removes the first ones.
///
/// # Errors
/// Those of the system.
pub(super) fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let flags = RenameFlags::from_bits_retain(flags);
    match rustix::fs::renameat_with(CWD, from, CWD, to, flags) {
        Err(rustix::io::Errno::XDEV) if (flags - RenameFlags::NOREPLACE).is_empty() => copied(from, to, flags),
        Err(rustix::io::Errno::XDEV) if flags == RenameFlags::EXCHANGE => exchanged(from, to),
        done => done.map_err(io::Error::from),
    }
}

/// Exchanges two entries: copies of both take the places of both.
fn exchanged(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (fs::symlink_metadata(from)?, fs::symlink_metadata(to)?);
    if (source.dev(), source.ino()) == (target.dev(), target.ino()) {
        return Ok(());
    }
    if source.is_dir() && is_within(to, &source)? || target.is_dir() && is_within(from, &target)? {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let there = beside(to)?;
    copy_tree(from, &there).inspect_err(|_| remove(&there, source.is_dir()))?;
    let here = beside(from)?;
    if let Err(error) = copy_tree(to, &here) {
        remove(&there, source.is_dir());
        remove(&here, target.is_dir());
        return Err(error);
    }
    for (old, is_folder, new) in [(from, source.is_dir(), &here), (to, target.is_dir(), &there)] {
        if is_folder {
            fs::remove_dir_all(old)?
        } else {
            fs::remove_file(old)?
        }
        fs::rename(new, old)?;
    }
    Ok(())
}

fn copied(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    let code = |number| Err(io::Error::from_raw_os_error(number));
    let source = fs::symlink_metadata(from)?;
    let target = fs::symlink_metadata(to).ok();
    if let Some(target) = &target {
        match (source.is_dir(), target.is_dir()) {
            _ if flags.contains(RenameFlags::NOREPLACE) => return code(libc::EEXIST),
            _ if (source.dev(), source.ino()) == (target.dev(), target.ino()) => return Ok(()),
            (true, false) => return code(libc::ENOTDIR),
            (false, true) => return code(libc::EISDIR),
            (true, true) if fs::read_dir(to)?.next().is_some() => return code(libc::ENOTEMPTY),
            _ => {}
        }
    }
    if source.is_dir() && is_within(to, &source)? {
        return code(libc::EINVAL);
    }
    let beside = beside(to)?;
    let moved = copy_tree(from, &beside)
        .and_then(|()| rustix::fs::renameat_with(CWD, &beside, CWD, to, flags).map_err(io::Error::from));
    if moved.is_err() {
        remove(&beside, source.is_dir());
        return moved;
    }
    if source.is_dir() { fs::remove_dir_all(from) } else { fs::remove_file(from) }
}

/// True if a path lies in a folder.
fn is_within(path: &Path, folder: &fs::Metadata) -> io::Result<bool> {
    let mut at = parent(path);
    loop {
        let found = fs::metadata(&at)?;
        if (found.dev(), found.ino()) == (folder.dev(), folder.ino()) {
            return Ok(true);
        }
        let above = at.join("..");
        let next = fs::metadata(&above)?;
        if (found.dev(), found.ino()) == (next.dev(), next.ino()) {
            return Ok(false);
        }
        at = above;
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

/// Returns a name beside a path that nothing has.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let folder = parent(path);
    let name = |number: u32| folder.join(format!(".vramlab-{}-{number}", std::process::id()));
    (0..1000).map(name).find(|name| fs::symlink_metadata(name).is_err()).ok_or(io::ErrorKind::AlreadyExists.into())
}

fn remove(path: &Path, is_folder: bool) {
    // What is left lies in an upper layer, which is removed with the run's folder.
    let _left = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves as between two overlays.
    fn moved(root: &Path, from: &str, to: &str) -> Option<i32> {
        copied(&root.join(from), &root.join(to), RenameFlags::empty())
            .err()
            .map(|error| error.raw_os_error().unwrap_or(0))
    }

    #[test]
    fn a_folder_moves_as_a_whole_and_the_checks_are_those_of_the_system() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("from/deep")).unwrap();
        fs::create_dir_all(root.join("full/x")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        fs::write(root.join("from/deep/file"), "contents").unwrap();
        fs::write(root.join("file"), "other").unwrap();
        std::os::unix::fs::symlink("deep/file", root.join("from/link")).unwrap();
        assert_eq!(moved(root, "from", "full"), Some(libc::ENOTEMPTY));
        assert_eq!(moved(root, "from", "file"), Some(libc::ENOTDIR));
        assert_eq!(moved(root, "file", "empty"), Some(libc::EISDIR));
        assert_eq!(moved(root, "from", "from/deep/inside"), Some(libc::EINVAL));
        assert_eq!(moved(root, "missing", "new"), Some(libc::ENOENT));
        assert_eq!(moved(root, "from", "empty"), None);
        assert!(!root.join("from").exists());
        assert_eq!(fs::read_to_string(root.join("empty/link")).unwrap(), "contents");
        assert_eq!(moved(root, "file", "empty/deep/file"), None);
        assert_eq!(fs::read_to_string(root.join("empty/link")).unwrap(), "other");
        let left = fs::read_dir(root).unwrap().count();
        assert_eq!(left, 2, "nothing is left over");
    }

    #[test]
    fn two_entries_change_places_and_one_inside_the_other_does_not() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("new/deep")).unwrap();
        fs::create_dir(at("best")).unwrap();
        fs::write(at("new/model"), "new").unwrap();
        fs::write(at("best/model"), "best").unwrap();
        fs::write(at("file"), "file").unwrap();
        exchanged(&at("new"), &at("best")).unwrap();
        exchanged(&at("new"), &at("file")).unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("best/model"), read("file/model"), read("new")), ("new".into(), "best".into(), "file".into()));
        let refused = |from: &str, to: &str| exchanged(&at(from), &at(to)).unwrap_err().raw_os_error();
        assert_eq!(refused("best", "best/deep"), Some(libc::EINVAL));
        assert_eq!(refused("best/deep", "best"), Some(libc::EINVAL));
        assert_eq!(refused("best", "missing"), Some(libc::ENOENT));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 3, "nothing is left over");
    }
}
