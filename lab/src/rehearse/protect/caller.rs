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
        let path = self.meant(self.text(address)?);
        if path.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(self.from(folder as i32, path))
    }

    /// Returns the path of the caller's path, from its root, working folder or open folder.
    fn from(self, folder: i32, path: Vec<u8>) -> PathBuf {
        let base = match folder {
            _ if path.starts_with(b"/") => format!("/proc/{}/root", self.thread),
            libc::AT_FDCWD => format!("/proc/{}/cwd/", self.thread),
            _ => format!("/proc/{}/fd/{folder}/", self.thread),
        };
        PathBuf::from(OsString::from_vec([base.into_bytes(), path].concat()))
    }

    /// Returns a path by which this process reaches what the caller has open, or the caller's working folder.
    pub(super) fn open(self, descriptor: u64) -> PathBuf {
        match descriptor as i32 {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.thread).into(),
            number => format!("/proc/{}/fd/{number}", self.thread).into(),
        }
    }

    /// Returns the name of its program, as the system keeps it: 15 characters at most.
    pub(super) fn program(self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.thread)).ok()?;
        Some(name.trim_end().into())
    }

    /// Returns the path of a socket's address; `None` if it has none in the file system.
    pub(super) fn socket(self, address: u64, length: u64) -> Option<PathBuf> {
        let bytes = self.bytes(address, length.min(110) as usize).ok()?;
        let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let path = bytes[2..].split(|byte| *byte == 0).next().filter(|path| !path.is_empty())?;
        let is_local = i32::from(family) == libc::AF_UNIX;
        is_local.then(|| self.from(libc::AT_FDCWD, self.meant(path.to_vec())))
    }

    /// Replaces the names that each process has for its own files.
    fn meant(self, path: Vec<u8>) -> Vec<u8> {
        let own = |rest: &[u8]| [format!("/proc/{}/", self.thread).as_bytes(), rest].concat();
        for name in [&b"/proc/self/"[..], b"/proc/thread-self/"] {
            if let Some(rest) = path.strip_prefix(name) {
                return own(rest);
            }
        }
        match path.as_slice() {
            b"/dev/stdin" => own(b"fd/0"),
            b"/dev/stdout" => own(b"fd/1"),
            b"/dev/stderr" => own(b"fd/2"),
            other => other.strip_prefix(b"/dev/fd/").map(|rest| own(&[b"fd/", rest].concat())).unwrap_or(path),
        }
    }

    /// Returns the process that a descriptor of a process stands for.
    pub(super) fn process_of(self, descriptor: u64) -> Option<i32> {
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.thread, descriptor as i32)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
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
