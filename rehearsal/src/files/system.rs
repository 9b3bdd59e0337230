//! Direct system calls, because the C library's functions are answered here.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::real::errno;

/// Result of a call, or the number of the error.
pub(super) type Outcome<T = ()> = Result<T, c_int>;

/// The working folder of the process, as a descriptor.
pub(super) const HERE: c_int = libc::AT_FDCWD;

/// Turns a path into a text for the system.
pub(super) fn text(path: &[u8]) -> Outcome<CString> {
    CString::new(path).map_err(|_| libc::EINVAL)
}

fn call(result: i64) -> Outcome<i64> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Returns the status of the entry at a path, without following links.
pub(super) fn lstat(path: &[u8]) -> Outcome<libc::stat> {
    let path = text(path)?;
    // SAFETY: all zeros are a good `stat`.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the path ends with a zero, and there is room for the answer.
    call(unsafe { libc::syscall(libc::SYS_newfstatat, HERE, path.as_ptr(), &raw mut found, flags) })?;
    Ok(found)
}

/// Returns how many names an open file has.
pub(super) fn names_of_open(descriptor: c_int) -> Outcome<u64> {
    // SAFETY: all zeros are a good `stat`.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: the path ends with a zero, and there is room for the answer.
    call(unsafe { libc::syscall(libc::SYS_newfstatat, descriptor, path, &raw mut found, flags) })?;
    Ok(found.st_nlink)
}

/// Returns when a plain file, a folder or a link was made, or else last changed, in seconds and nanoseconds.
pub(super) fn born(path: &[u8]) -> Outcome<(i64, i64)> {
    let path = text(path)?;
    // SAFETY: all zeros are a good `statx`.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_SYMLINK_NOFOLLOW, libc::STATX_BASIC_STATS | libc::STATX_BTIME);
    // SAFETY: the path ends with a zero, and there is room for the answer.
    call(unsafe { libc::syscall(libc::SYS_statx, HERE, path.as_ptr(), flags, mask, &raw mut found) })?;
    if ![libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK].contains(&(u32::from(found.stx_mode) & libc::S_IFMT)) {
        return Err(libc::ENOENT);
    }
    let time = if found.stx_mask & libc::STATX_BTIME != 0 { found.stx_btime } else { found.stx_ctime };
    Ok((time.tv_sec, time.tv_nsec.into()))
}

/// Returns the kind of an entry, as `S_IFMT` masks it.
pub(super) fn kind(found: &libc::stat) -> libc::mode_t {
    found.st_mode & libc::S_IFMT
}

/// Returns the target of a link.
pub(super) fn read_link(path: &[u8]) -> Outcome<Vec<u8>> {
    let path = text(path)?;
    let mut room = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the path ends with a zero, and the room is as large as is said.
    let length =
        call(unsafe { libc::syscall(libc::SYS_readlinkat, HERE, path.as_ptr(), room.as_mut_ptr(), room.len()) })?;
    room.truncate(length as usize);
    Ok(room)
}

pub(super) fn make_folder(path: &[u8], mode: libc::mode_t) -> Outcome {
    let path = text(path)?;
    // SAFETY: the path ends with a zero.
    call(unsafe { libc::syscall(libc::SYS_mkdirat, HERE, path.as_ptr(), mode) }).map(drop)
}

/// Removes a file, or an empty folder.
pub(super) fn remove(path: &[u8], folder: bool) -> Outcome {
    let path = text(path)?;
    let flags = if folder { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: the path ends with a zero.
    call(unsafe { libc::syscall(libc::SYS_unlinkat, HERE, path.as_ptr(), flags) }).map(drop)
}

/// Makes a link whose target is a text.
pub(super) fn make_link(target: &[u8], path: &[u8]) -> Outcome {
    let (target, path) = (text(target)?, text(path)?);
    // SAFETY: both end with a zero.
    call(unsafe { libc::syscall(libc::SYS_symlinkat, target.as_ptr(), HERE, path.as_ptr()) }).map(drop)
}

/// Renames a file.
pub(super) fn rename(from: &[u8], to: &[u8]) -> Outcome {
    renamed(from, to, 0)
}

/// Exchanges two entries.
pub(super) fn exchange(from: &[u8], to: &[u8]) -> Outcome {
    renamed(from, to, libc::RENAME_EXCHANGE)
}

fn renamed(from: &[u8], to: &[u8], flags: u32) -> Outcome {
    let (from, to) = (text(from)?, text(to)?);
    // SAFETY: both end with a zero.
    call(unsafe { libc::syscall(libc::SYS_renameat2, HERE, from.as_ptr(), HERE, to.as_ptr(), flags) }).map(drop)
}

/// Checks whether a path may be used as `how` says (`W_OK` and similar).
pub(super) fn access(path: &[u8], how: c_int) -> Outcome {
    let path = text(path)?;
    // SAFETY: the path ends with a zero.
    call(unsafe { libc::syscall(libc::SYS_faccessat, HERE, path.as_ptr(), how) }).map(drop)
}

/// Returns the working folder of the process.
pub(super) fn working_folder() -> Outcome<Vec<u8>> {
    let mut room = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the room is as large as is said.
    let length = call(unsafe { libc::syscall(libc::SYS_getcwd, room.as_mut_ptr(), room.len()) })?;
    room.truncate((length as usize).saturating_sub(1));
    Ok(room)
}

/// Returns the names in a folder of the real file system, with their kinds. Empty if it is not a folder.
///
/// `std` calls the functions that are answered here. The path is absolute and not protected, or it is meant literally;
/// [`super::as_it_is`] keeps the functions from redirecting it.
pub(super) fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let _as_it_is = super::as_it_is::as_it_is();
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().as_bytes().to_vec()).collect()
}

/// Removes one of our own folders with everything in it.
pub(super) fn remove_all(path: &[u8]) {
    let _as_it_is = super::as_it_is::as_it_is();
    // Anything left over is removed with the run's folder.
    let _left = std::fs::remove_dir_all(Path::new(std::ffi::OsStr::from_bytes(path)));
}
