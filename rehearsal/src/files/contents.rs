//! Copies of a file's contents, which appear whole.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use super::protection::Protection;
use super::real::errno;
use super::system::{HERE, Outcome, remove, text};

/// Request to share all blocks of another file (`FICLONE`).
const CLONE: u64 = 0x4004_9409;

/// Copies a file's contents, mode, owner, times and attributes to a new file. The copy has its name only when it is whole: other processes never see half of one. If
/// another process has made it meanwhile, that one stays.
pub(super) fn copy(protection: &Protection, from: &[u8], to: &[u8], contents: bool, stat: &libc::stat) -> Outcome {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = format!("/{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let part = [protection.parts.as_slice(), number.as_bytes()].concat();
    let made = fill(from, &part, contents, stat).and_then(|()| match link(&part, to) {
        Err(libc::EEXIST) => Ok(()),
        linked => linked,
    });
    // The copy has its own name now; without it, nothing is left.
    let _gone = remove(&part, false);
    made
}

fn link(from: &[u8], to: &[u8]) -> Outcome {
    let (from, to) = (text(from)?, text(to)?);
    // SAFETY: both end with a zero.
    call(unsafe { libc::syscall(libc::SYS_linkat, HERE, from.as_ptr(), HERE, to.as_ptr(), 0) }).map(drop)
}

fn call(result: i64) -> Outcome<i64> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn fill(from: &[u8], to: &[u8], contents: bool, stat: &libc::stat) -> Outcome {
    let source = Descriptor::open(from, libc::O_RDONLY, 0);
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let target = Descriptor::open(to, flags, 0o600)?;
    if contents {
        source.as_ref().map_err(|error| *error)?.copy_to(&target)?;
    }
    if let Ok(source) = &source {
        source.copy_attributes(&target);
    }
    target.take(stat)
}

/// An open file. It is closed when dropped.
struct Descriptor(c_int);

impl Descriptor {
    fn open(path: &[u8], flags: c_int, mode: libc::mode_t) -> Outcome<Self> {
        let path = text(path)?;
        let flags = flags | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero.
        call(unsafe { libc::syscall(libc::SYS_openat, HERE, path.as_ptr(), flags, mode) }).map(|fd| Self(fd as c_int))
    }

    /// Copies all bytes. Shares them where the file system can, and leaves holes as holes.
    fn copy_to(&self, target: &Self) -> Outcome {
        // SAFETY: both descriptors are open.
        if unsafe { libc::syscall(libc::SYS_ioctl, target.0, CLONE, self.0) } == 0 {
            return Ok(());
        }
        let length = self.seek(0, libc::SEEK_END)?;
        // SAFETY: the descriptor is open.
        call(unsafe { libc::syscall(libc::SYS_ftruncate, target.0, length) })?;
        let mut at = 0;
        while at < length {
            let data = match self.seek(at, libc::SEEK_DATA) {
                Ok(data) => data,
                // A hole up to the end.
                Err(libc::ENXIO) => break,
                // This file system does not tell.
                Err(_) => at,
            };
            let end = self.seek(data, libc::SEEK_HOLE).unwrap_or(length);
            self.copy_piece(target, data, end)?;
            at = end;
        }
        Ok(())
    }

    /// Copies extended attributes. Those that another file system does not take are lost, as with `cp -a`.
    fn copy_attributes(&self, target: &Self) {
        let mut names = vec![0u8; 1 << 16];
        // SAFETY: the descriptor is open, and the room is as large as is said.
        let length =
            call(unsafe { libc::syscall(libc::SYS_flistxattr, self.0, names.as_mut_ptr(), names.len()) }).unwrap_or(0);
        for name in names[..length as usize].split_inclusive(|byte| *byte == 0) {
            let mut value = vec![0u8; 1 << 16];
            let room = (value.as_mut_ptr(), value.len());
            // SAFETY: the descriptors are open, the name ends with a zero, and the room is as large as is said.
            unsafe {
                let length = libc::syscall(libc::SYS_fgetxattr, self.0, name.as_ptr(), room.0, room.1);
                if length >= 0 {
                    libc::syscall(libc::SYS_fsetxattr, target.0, name.as_ptr(), room.0, length, 0);
                }
            }
        }
    }

    /// Takes the owner, mode and times of another file, as far as this user may.
    fn take(&self, stat: &libc::stat) -> Outcome {
        // SAFETY: the descriptor is open; only root may give a file away.
        let is_owned = unsafe { libc::syscall(libc::SYS_fchown, self.0, stat.st_uid, stat.st_gid) } == 0;
        // Who may write the original may write a copy, though its owner is another one.
        let mode = (stat.st_mode & 0o7777) | if is_owned { 0 } else { 0o200 };
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let times = [time(stat.st_atime, stat.st_atime_nsec), time(stat.st_mtime, stat.st_mtime_nsec)];
        let no_path = std::ptr::null::<u8>();
        // SAFETY: the descriptor is open, and there are two times.
        unsafe {
            call(libc::syscall(libc::SYS_fchmod, self.0, mode))?;
            call(libc::syscall(libc::SYS_utimensat, self.0, no_path, times.as_ptr(), 0)).map(drop)
        }
    }

    fn seek(&self, offset: i64, whence: c_int) -> Outcome<i64> {
        // SAFETY: the descriptor is open.
        call(unsafe { libc::syscall(libc::SYS_lseek, self.0, offset, whence) })
    }

    /// Copies the bytes from one place to another to the same place of another file.
    fn copy_piece(&self, target: &Self, from: i64, to: i64) -> Outcome {
        let mut room = vec![0u8; 1 << 20];
        let mut at = from;
        while at < to {
            let most = room.len().min((to - at) as usize);
            // SAFETY: the descriptor is open, and the room is as large as is said.
            let read = call(unsafe { libc::syscall(libc::SYS_pread64, self.0, room.as_mut_ptr(), most, at) })?;
            let mut written = 0;
            while written < read {
                let rest = &room[written as usize..read as usize];
                // SAFETY: the descriptor is open, and so many bytes lie there.
                written += call(unsafe {
                    libc::syscall(libc::SYS_pwrite64, target.0, rest.as_ptr(), rest.len(), at + written)
                })?;
            }
            if read == 0 {
                break;
            }
            at += read;
        }
        Ok(())
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}
