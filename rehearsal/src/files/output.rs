//! Notes whether what a script writes ends within a line, so that the launcher's progress does not stand in the middle of it.
//!
//! `VRAMLAB_REHEARSAL_OUTPUT` is `DEVICE:INODE:PATH`: the file, pipe or terminal that the launcher writes to, and a file whose only byte is the
//! last one that a process of the run wrote there. What the C library's own streams write (`printf`) does not come by here.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use libc::{iovec, size_t, ssize_t};

use super::real::{errno, real, set_errno};

struct Output {
    device: u64,
    inode: u64,
    /// The byte, shared with the launcher.
    last: AtomicPtr<AtomicU8>,
}

static OUTPUT: LazyLock<Option<Output>> = LazyLock::new(|| {
    let value = std::env::var("VRAMLAB_REHEARSAL_OUTPUT").ok()?;
    let mut parts = value.splitn(3, ':');
    let (device, inode) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(parts.next()?).ok()?;
    if file.metadata().ok()?.len() == 0 {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that has this byte; it is never unmapped.
    let at = unsafe { libc::mmap(ptr::null_mut(), 1, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (at != libc::MAP_FAILED).then(|| Output { device, inode, last: AtomicPtr::new(at.cast()) })
});

/// Notes the last byte that goes to a descriptor, if it is one for output that the launcher writes to, too.
fn note(descriptor: c_int, last: u8) {
    if !matches!(descriptor, libc::STDOUT_FILENO | libc::STDERR_FILENO) {
        return;
    }
    let before = errno();
    if let Some(output) = &*OUTPUT {
        // SAFETY: a structure of numbers, for which all zeros are valid; the call fills it.
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the room is this structure.
        let found = unsafe { libc::syscall(libc::SYS_fstat, descriptor, &raw mut about) } == 0;
        if found && about.st_dev == output.device && about.st_ino == output.inode {
            // SAFETY: the mapping stays for as long as the process.
            unsafe { &*output.last.load(Ordering::Relaxed) }.store(last, Ordering::Relaxed);
        }
    }
    set_errno(before);
}

#[unsafe(no_mangle)]
extern "C" fn write(descriptor: c_int, from: *const c_void, count: size_t) -> ssize_t {
    if count > 0 && !from.is_null() {
        // SAFETY: the caller vouches for so many bytes.
        note(descriptor, unsafe { *from.cast::<u8>().add(count - 1) });
    }
    real!(write as fn(c_int, *const c_void, size_t) -> ssize_t, -1; descriptor, from, count)
}

#[unsafe(no_mangle)]
extern "C" fn writev(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if let Ok(length @ 1..) = usize::try_from(count)
        && !parts.is_null()
    {
        // SAFETY: the caller vouches for so many parts, and for the bytes of each.
        let last = unsafe { std::slice::from_raw_parts(parts, length) }.iter().rev().find(|part| part.iov_len > 0);
        if let Some(part) = last {
            // SAFETY: as above.
            note(descriptor, unsafe { *part.iov_base.cast::<u8>().add(part.iov_len - 1) });
        }
    }
    real!(writev as fn(c_int, *const iovec, c_int) -> ssize_t, -1; descriptor, parts, count)
}
