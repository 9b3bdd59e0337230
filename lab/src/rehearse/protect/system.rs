//! System calls that no library wraps as it is needed here.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Turns the result of a call into an error where it is negative.
pub(super) fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Turns a path into a text for the system.
pub(super) fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// Moves this process into new namespaces. It must have a single thread.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: the call takes a number alone.
    checked(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// Mounts. `data` are the options of the file system.
pub(super) fn mount(source: &Path, target: &Path, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let (source, target) = (text(source)?, text(target)?);
    let (kind, data) = (CString::new(kind)?, CString::new(data)?);
    // SAFETY: all texts end with a zero and live until the call returns.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast::<c_void>()) };
    checked(result.into()).map(drop)
}

/// Makes a mount read-only, and leaves its other settings as they are.
pub(super) fn make_read_only(point: &Path) -> io::Result<()> {
    read_only(point, 0)
}

/// The same with all mounts below it.
pub(super) fn make_all_read_only(point: &Path) -> io::Result<()> {
    read_only(point, libc::AT_RECURSIVE)
}

fn read_only(point: &Path, flags: c_int) -> io::Result<()> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    let point = text(point)?;
    // The structure `mount_attr`: set, clear, propagation, namespace.
    let settings: [u64; 4] = [MOUNT_ATTR_RDONLY, 0, 0, 0];
    // SAFETY: the path ends with a zero, and the structure has the size that is given.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            point.as_ptr(),
            flags,
            settings.as_ptr(),
            std::mem::size_of_val(&settings),
        )
    })
    .map(drop)
}

/// Opens an entry as a place alone, without reading it.
pub(super) fn place(path: &Path, follow: bool) -> io::Result<OwnedFd> {
    let path = text(path)?;
    let flags = libc::O_PATH | libc::O_CLOEXEC | if follow { 0 } else { libc::O_NOFOLLOW };
    // SAFETY: the path ends with a zero.
    let opened = checked(unsafe { libc::open(path.as_ptr(), flags) }.into())?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as c_int) })
}

/// Returns a path by which the system finds what is open: it has no character that a list of options would split.
pub(super) fn path_of(open: BorrowedFd) -> std::path::PathBuf {
    format!("/proc/self/fd/{}", open.as_raw_fd()).into()
}

/// Makes this process the parent of descendants whose own parent ends.
pub(super) fn adopt_orphans() {
    // If the system refuses, orphans go to this program, which adopts them too.
    let _unrelated = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Waits for a child that has ended. Returns its process id and status; `None` if none has.
pub(super) fn ended_child() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: there is room for the status.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// Waits until one of these can be read or is closed at its other end, or the time is over. Returns the events of each, as `poll` does.
pub(super) fn readable<const N: usize>(descriptors: [c_int; N], milliseconds: c_int) -> [i16; N] {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the list has N entries; negative descriptors are left out by the system.
    unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    polled.map(|one| one.revents)
}
