//! The protected paths, the place of the copies, and whether any copies exist.

use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{as_it_is, system};

/// Settings from the environment.
pub(super) struct Protection {
    /// `VRAMLAB_REHEARSAL_FILES`: the folder for the copies and listings.
    root: Vec<u8>,
    /// Folder of the copies. Each copy is at its original's path below it.
    pub(super) copies: Vec<u8>,
    /// Folders that show originals and copies together.
    pub(super) listings: Vec<u8>,
    /// Folder of copies that are not whole yet.
    pub(super) parts: Vec<u8>,
    /// `VRAMLAB_REHEARSAL_FILES_OPEN`, `…_CLOSED`: folders below which nothing is protected, and folders below which
    /// everything is. The longest folder that contains a path decides. Elsewhere everything is protected.
    open: Vec<Vec<u8>>,
    closed: Vec<Vec<u8>>,
    /// `VRAMLAB_REHEARSAL_FILES_TEMPORARY`: folders of `open` in which what existed before the run is protected all the same, and
    /// `…_SINCE`: when the run began, in seconds and nanoseconds.
    temporary: Vec<Vec<u8>>,
    since: (i64, i64),
    /// A byte that all processes share: not 0 if any copy exists.
    changed: &'static AtomicU8,
}

static PROTECTION: OnceLock<Option<Protection>> = OnceLock::new();

/// Returns the protection; `None` without the variable, and while this thread sees files as they are.
pub(super) fn protection() -> Option<&'static Protection> {
    if as_it_is::holds() {
        return None;
    }
    if let Some(known) = PROTECTION.get() {
        return known.as_ref();
    }
    let _as_it_is = as_it_is::as_it_is();
    PROTECTION.get_or_init(read).as_ref()
}

fn read() -> Option<Protection> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let list = |name: &str| {
        let value = variable(name).unwrap_or_default();
        paths_of(value.as_bytes())
    };
    let root = trimmed(variable("VRAMLAB_REHEARSAL_FILES")?.as_bytes()).to_vec();
    let within = |name: &[u8]| [root.as_slice(), name].concat();
    let [copies, listings, parts, state] =
        [within(b"/copies"), within(b"/listings"), within(b"/parts"), within(b"/changed")];
    for folder in [&copies, &listings, &parts] {
        // Another process may have made the folder.
        let _there = system::make_folder(folder, 0o700);
    }
    let changed = shared_byte(&state)?;
    let open = list("VRAMLAB_REHEARSAL_FILES_OPEN");
    let closed = list("VRAMLAB_REHEARSAL_FILES_CLOSED");
    let temporary = list("VRAMLAB_REHEARSAL_FILES_TEMPORARY");
    let since = variable("VRAMLAB_REHEARSAL_FILES_SINCE").and_then(|text| {
        let (seconds, nanoseconds) = text.to_str()?.split_once('.')?;
        Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
    });
    let since = since.unwrap_or_default();
    Some(Protection { root, copies, listings, parts, open, closed, temporary, since, changed })
}

/// Splits a list of paths at colons. A backslash stands before a colon that belongs to a path, and before a backslash.
fn paths_of(list: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    let mut bytes = list.iter();
    while let Some(byte) = bytes.next() {
        let path = found.last_mut();
        match (byte, path) {
            (b':', _) => found.push(Vec::new()),
            (b'\\', Some(path)) => path.extend(bytes.next()),
            (byte, Some(path)) => path.push(*byte),
            (_, None) => {}
        }
    }
    found.retain(|path| path.starts_with(b"/"));
    found.into_iter().map(|path| trimmed(&path).to_vec()).collect()
}

fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Maps the first byte of a file, shared by all processes. Without it, a run would write where it must not, so the
/// process ends.
fn shared_byte(path: &[u8]) -> Option<&'static AtomicU8> {
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let file = std::fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    let mapped = file.and_then(|file| {
        file.set_len(1)?;
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: maps one page of a file that is open, at an address of the system's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), 1, flags, libc::MAP_SHARED, descriptor, 0) };
        if address == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(address) }
    });
    match mapped {
        // SAFETY: the mapping is never undone, has a byte, and is used as nothing else.
        Ok(address) => Some(unsafe { &*address.cast::<AtomicU8>() }),
        Err(error) => {
            eprintln!("vramlab rehearsal: VRAMLAB_REHEARSAL_FILES cannot be used: {error}");
            std::process::exit(2);
        }
    }
}

/// True if a path is this folder, or lies in it.
pub(super) fn is_within(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Protection {
    /// True if nothing may change at this path, which is absolute.
    pub(super) fn protects(&self, path: &[u8]) -> bool {
        let longest = |folders: &[Vec<u8>]| {
            let around = folders.iter().filter(|folder| is_within(path, folder));
            around.map(|folder| folder.len() + 1).max().unwrap_or(0)
        };
        let (open, closed) = (longest(&self.open), longest(&self.closed));
        if is_within(path, &self.root) {
            return false;
        }
        open == 0 || closed > open || longest(&self.temporary) == open && self.is_old(path)
    }

    /// True if an entry existed before the run.
    fn is_old(&self, path: &[u8]) -> bool {
        self.since != (0, 0) && system::born(path).is_ok_and(|born| born < self.since)
    }

    /// True if any copy exists.
    pub(super) fn has_changes(&self) -> bool {
        self.changed.load(Ordering::Acquire) != 0
    }

    /// Notes that copies exist from now on.
    pub(super) fn note_change(&self) {
        self.changed.store(1, Ordering::Release);
    }

    /// Returns the path of the copy for a path.
    pub(super) fn copy_of(&self, path: &[u8]) -> Vec<u8> {
        [self.copies.as_slice(), path].concat()
    }

    /// Returns the path that one of our own paths stands for, or else the path itself.
    pub(super) fn meant<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let meant = if is_within(path, &self.copies) {
            &path[self.copies.len()..]
        } else if is_within(path, &self.listings) && path.len() > self.listings.len() {
            // `listings/NUMBER/path`
            let rest = &path[self.listings.len() + 1..];
            rest.iter().position(|byte| *byte == b'/').map_or(&b""[..], |at| &rest[at..])
        } else {
            return path;
        };
        if meant.is_empty() { b"/" } else { meant }
    }
}
