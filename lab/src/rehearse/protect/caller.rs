//! The process that waits for the answer to a system call: its memory, its paths.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::system::checked;

/// A thread that made a system call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    thread: u32,
}

/// Bytes that are read at once. No such piece crosses the end of a page.
const PIECE: u64 = 256;

impl Caller {
    pub(super) fn of(thread: u32) -> Self {
        Self { thread }
    }

    /// Reads its memory.
    pub(super) fn bytes(self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut room = vec![0u8; length];
        let local = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: length };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
        // SAFETY: the local piece has the length that is given; the other one belongs to another process.
        let read = unsafe { libc::process_vm_readv(self.thread as i32, &local, 1, &remote, 1, 0) };
        room.truncate(checked(read as i64)? as usize);
        Ok(room)
    }

    /// Reads a text that ends with a zero.
    fn text(self, address: u64) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        while found.len() < libc::PATH_MAX as usize {
            let at = address + found.len() as u64;
            let piece = self.bytes(at, (PIECE - at % PIECE) as usize)?;
            if piece.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    found.extend(&piece[..end]);
                    return Ok(found);
                }
                None => found.extend(piece),
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    }

    /// Returns a path by which this process reaches the file that the caller names, from the caller's root, working folder or open
    /// folder.
    pub(super) fn path(self, folder: u64, address: u64) -> io::Result<PathBuf> {
        let path = self.text(address)?;
        if path.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let folder = folder as i32;
        let base = match folder {
            _ if path.starts_with(b"/") => format!("/proc/{}/root", self.thread),
            libc::AT_FDCWD => format!("/proc/{}/cwd/", self.thread),
            _ => format!("/proc/{}/fd/{folder}/", self.thread),
        };
        Ok(PathBuf::from(OsString::from_vec([base.into_bytes(), path].concat())))
    }

    /// Returns its user and group as the system checks them for files.
    pub(super) fn ids(self) -> Option<(u32, u32)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()?;
        let last = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(3)?.parse().ok()
        };
        Some((last("Uid:")?, last("Gid:")?))
    }
}
