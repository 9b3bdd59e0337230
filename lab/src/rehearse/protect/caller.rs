//! The process that waits for the answer to a system call: its memory, the paths that it names.

use std::io;
use std::path::PathBuf;

use super::lookup::Named;
use super::system::checked;

/// A thread that made a system call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    thread: u32,
}

/// Bytes that are read at once. No such piece crosses the end of a page.
const PIECE: u64 = 256;

impl Caller {
    pub(super) fn from_thread(thread: u32) -> Self {
        Self { thread }
    }

    /// Returns its number.
    pub(super) fn thread(self) -> u32 {
        self.thread
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

    /// Returns the path at this address, followed from the caller's root, working folder or open folder.
    ///
    /// # Errors
    /// That nothing can be read there, that the path is too long, and `ENOENT` if it is empty.
    pub(super) fn path(self, folder: u64, address: u64) -> io::Result<Named> {
        let path = self.text(address)?;
        if path.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(Named::new(self.thread, self.place(folder), &path))
    }

    /// The same for `openat2`, whose rules stand behind its flags and mode at another address.
    pub(super) fn path_by_rules(self, folder: u64, address: u64, how: u64) -> io::Result<Named> {
        let rules = self.bytes(how + 16, 8)?;
        let rules = rules.try_into().map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
        let path = self.text(address)?;
        Ok(self.path(folder, address)?.by_rules(self.place(folder), &path, u64::from_ne_bytes(rules)))
    }

    /// What the caller has open, or its working folder.
    pub(super) fn open(self, descriptor: u64) -> Named {
        Named::open(self.thread, self.place(descriptor))
    }

    /// Returns a path by which this process reaches what the caller has open, or the caller's working folder.
    fn place(self, descriptor: u64) -> PathBuf {
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
    pub(super) fn socket(self, address: u64, length: u64) -> Option<Named> {
        let bytes = self.bytes(address, length.min(110) as usize).ok()?;
        let path = path_of_socket(&bytes)?;
        Some(Named::new(self.thread, self.place(libc::AT_FDCWD as u64), path))
    }

    /// Returns the process that a descriptor of a process stands for.
    pub(super) fn process_of(self, descriptor: u64) -> Option<i32> {
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.thread, descriptor as i32)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
    }

    /// Returns the process of which it is a thread.
    pub(super) fn process(self) -> Option<i32> {
        self.status()?.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
    }

    fn status(self) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()
    }

    /// Returns its user and group as the system checks them for files.
    pub(super) fn ids(self) -> Option<(u32, u32)> {
        let status = self.status()?;
        let last = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(3)?.parse().ok()
        };
        Some((last("Uid:")?, last("Gid:")?))
    }
}

/// Returns the path in a socket's address; `None` if it has none in the file system.
pub(super) fn path_of_socket(address: &[u8]) -> Option<&[u8]> {
    let family = u16::from_ne_bytes(address.get(..2)?.try_into().ok()?);
    let path = address[2..].split(|byte| *byte == 0).next().filter(|path| !path.is_empty())?;
    (i32::from(family) == libc::AF_UNIX).then_some(path)
}
