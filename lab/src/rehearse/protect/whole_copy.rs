//! Copies of files and folders that share or skip what they can: the data's blocks, and holes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags};

/// Copies an entry, with everything below it, to a name that nothing has.
///
/// # Errors
/// Those of the system.
pub(super) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    let kind = found.file_type();
    if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_file() {
        copy_file(from, to)?;
    } else {
        let kind = if kind.is_fifo() { FileType::Fifo } else { FileType::Socket };
        rustix::fs::mknodat(CWD, to, kind, Mode::from_bits_truncate(found.mode()), 0)?;
    }
    take_attributes(&found, from, to)
}

/// Gives a copy the owner, mode, times and attributes, as far as this user may.
fn take_attributes(found: &fs::Metadata, from: &Path, to: &Path) -> io::Result<()> {
    let _only_root_may = std::os::unix::fs::lchown(to, Some(found.uid()), Some(found.gid()));
    if !found.file_type().is_symlink() {
        copy_xattrs(from, to);
        fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))?;
    }
    let time = |seconds, nanoseconds: i64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// Copies extended attributes. Those that another file system does not take are lost, as with `cp -a`.
fn copy_xattrs(from: &Path, to: &Path) {
    let mut names = vec![0u8; 1 << 16];
    let length = rustix::fs::llistxattr(from, &mut names).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 1 << 16];
        if let Ok(length) = rustix::fs::lgetxattr(from, name, &mut value) {
            let _not_taken = rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}

/// Copies a plain file's contents and mode to a new file. Shares its blocks where the file system can, and leaves holes as holes.
///
/// # Errors
/// Those of the system; if the first is not a plain file, or the second exists.
pub(in crate::rehearse) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let source = OpenOptions::new().read(true).custom_flags(flags).open(from)?;
    let found = source.metadata()?;
    if !found.is_file() {
        let name = String::from_utf8_lossy(from.as_os_str().as_bytes()).into_owned();
        return Err(io::Error::other(format!("{name} is not a plain file")));
    }
    let target = OpenOptions::new().write(true).create_new(true).mode(found.mode() & 0o7777).open(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    target.set_len(found.len())?;
    let mut at = 0;
    while at < found.len() {
        let data = match rustix::fs::seek(&source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // A hole up to the end.
            Err(rustix::io::Errno::NXIO) => break,
            // This file system does not tell.
            Err(_) => at,
        };
        let end = rustix::fs::seek(&source, SeekFrom::Hole(data)).unwrap_or(found.len());
        copy_piece(&source, &target, data, end)?;
        at = end;
    }
    Ok(())
}

fn copy_piece(source: &File, target: &File, from: u64, to: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let (mut read_at, mut write_at) = (from, from);
    while read_at < to {
        let most = usize::try_from(to - read_at).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), most) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(rustix::io::Errno::NOSPC) => return Err(rustix::io::Errno::NOSPC.into()),
            // Not between these two file systems.
            Err(_) => break,
        }
    }
    let mut room = vec![0u8; 1 << 20];
    while read_at < to {
        let most = usize::try_from(to - read_at).unwrap_or(usize::MAX).min(room.len());
        let read = source.read_at(&mut room[..most], read_at)?;
        if read == 0 {
            break;
        }
        target.write_all_at(&room[..read], read_at)?;
        read_at += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_stay_holes_and_pipes_hold_nothing_up() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let file = File::create(at("sparse")).unwrap();
        use std::os::unix::fs::FileExt;
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 40 << 20).unwrap();
        file.set_len(1 << 30).unwrap();
        drop(file);
        copy_file(&at("sparse"), &at("copy")).unwrap();
        let found = fs::metadata(at("copy")).unwrap();
        assert_eq!(found.len(), 1 << 30);
        assert!(found.blocks() * 512 < 1 << 20, "{} bytes are taken", found.blocks() * 512);
        let mut room = [0u8; 6];
        File::open(at("copy")).unwrap().read_exact_at(&mut room, 40 << 20).unwrap();
        assert_eq!(&room, b"middle");
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_bits_truncate(0o600), 0).unwrap();
        assert!(copy_file(&at("pipe"), &at("never")).unwrap_err().to_string().contains("not a plain file"));
        std::os::unix::fs::symlink("sparse", at("link")).unwrap();
        assert!(copy_file(&at("link"), &at("never")).is_err(), "a link is not followed");
    }
}
