//! Decides on system calls that change files, where no namespace protects them.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use libc::c_long;

use super::caller::Caller;
use super::changes::{Entry, Links, changes, reaches, refused};
use super::descendants::is_descendant;
use super::filter::Rule;
use super::policy::{Policy, Target};
use super::way::Wanted;

/// What a call does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Makes a new one, and fails if there is one.
    Makes,
    /// Makes or changes it.
    Either,
    /// Changes or removes one, and fails if there is none.
    Changes,
    /// Opens it for writing.
    Opens,
    /// Opens it for writing, or makes it.
    OpensOrMakes,
}

/// Decides by the folders in which a run may write.
pub(super) struct Veto {
    policy: Policy,
    calls: HashMap<c_long, (&'static [Entry], Links)>,
}

impl Veto {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let calls = changes().into_iter().map(|(number, _, entries, links)| (number, (entries, links))).collect();
        Self { policy: Policy::of(wanted), calls }
    }

    /// Returns the rules for the filter; none where this is not known to hold.
    pub(super) fn rules() -> Vec<(c_long, Rule)> {
        let changes: Vec<(c_long, Rule)> = changes().into_iter().map(|(number, rule, ..)| (number, rule)).collect();
        if changes.is_empty() { changes } else { changes.into_iter().chain(reaches()).chain(refused()).collect() }
    }

    /// Returns what a call must not change; `None` if the system may make the call.
    pub(super) fn refuses(&self, caller: Caller, number: c_long, given: &[u64; 6]) -> Option<PathBuf> {
        if let Some(process) = reached(caller, number, given) {
            return (!is_descendant(process)).then(|| format!("/proc/{process}/mem").into());
        }
        let (entries, links) = self.calls.get(&number)?;
        let flags = flags(caller, number, given);
        let is_nameless = flags & libc::O_TMPFILE as u64 == libc::O_TMPFILE as u64;
        let only_reads = flags & WRITES == 0;
        if opens(number) && (is_nameless || only_reads) {
            return None;
        }
        let follow = match *links {
            Links::Followed => !opens(number) || flags & NOT_FOLLOWED == 0,
            Links::Itself => false,
            Links::Unless(argument, unless) => given[argument] & u64::from(unless) == 0,
            Links::If(argument, flag) => given[argument] & u64::from(flag) != 0,
        };
        entries.iter().enumerate().find_map(|(place, entry)| {
            let act = act(number, place, flags);
            let (path, is_open) = match path(caller, *entry, given) {
                Ok(path) => path?,
                Err(error) if will_fail(&error) => return None,
                Err(_) => return Some("?".into()),
            };
            // The second name of a link or a rename is never followed. What stands for an open file is a link to it.
            match Policy::target(&path, is_open || follow && place == 0) {
                Ok(target) => (!self.may(act, &target)).then_some(target.path),
                Err(error) => (!will_fail(&error)).then_some(path),
            }
        })
    }

    fn may(&self, act: Act, target: &Target) -> bool {
        let fails_anyway = match act {
            Act::Makes => target.exists(),
            Act::Changes => !target.exists(),
            // Folders cannot be opened for writing; pipes, sockets and devices hold nothing, but for disks.
            Act::Opens => !target.holds_bytes(),
            Act::OpensOrMakes => target.exists() && !target.holds_bytes(),
            Act::Either => false,
        };
        fails_anyway || self.policy.allows(target)
    }
}

/// Returns the process into which a call reaches; 0 if that is not known, and `None` if it reaches into none.
fn reached(caller: Caller, number: c_long, given: &[u64; 6]) -> Option<i32> {
    match number {
        libc::SYS_ptrace => Some(given[1] as i32),
        libc::SYS_process_vm_writev => Some(given[0] as i32),
        libc::SYS_pidfd_getfd => Some(caller.process_of(given[0]).unwrap_or(0)),
        _ => None,
    }
}

/// Flags of `open` with which something may change, and those with which a link at the end is not followed.
const WRITES: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;
const NOT_FOLLOWED: u64 = (libc::O_EXCL | libc::O_NOFOLLOW) as u64;

fn opens(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if [libc::SYS_open, libc::SYS_creat].contains(&number) {
        return true;
    }
    [libc::SYS_openat, libc::SYS_openat2].contains(&number)
}

/// Returns the flags with which a call opens.
fn flags(caller: Caller, number: c_long, given: &[u64; 6]) -> u64 {
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => given[1],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC) as u64,
        libc::SYS_openat => given[2],
        libc::SYS_openat2 => {
            let bytes = caller.bytes(given[2], 8).ok().and_then(|bytes| bytes.try_into().ok());
            // What cannot be read counts as writing.
            bytes.map_or(WRITES, u64::from_ne_bytes)
        }
        _ => 0,
    }
}

fn act(number: c_long, place: usize, flags: u64) -> Act {
    let creates = flags & libc::O_CREAT as u64 != 0;
    let exclusive = creates && flags & libc::O_EXCL as u64 != 0;
    let makes = [libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_symlinkat, libc::SYS_bind];
    #[cfg(target_arch = "x86_64")]
    let (makes, links, renames) = (
        [&makes[..], &[libc::SYS_mkdir, libc::SYS_mknod, libc::SYS_symlink]].concat(),
        vec![libc::SYS_link, libc::SYS_linkat],
        vec![libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2],
    );
    #[cfg(not(target_arch = "x86_64"))]
    let (links, renames) = (vec![libc::SYS_linkat], vec![libc::SYS_renameat, libc::SYS_renameat2]);
    match number {
        _ if opens(number) && exclusive => Act::Makes,
        _ if opens(number) && creates => Act::OpensOrMakes,
        _ if opens(number) => Act::Opens,
        _ if makes.contains(&number) => Act::Makes,
        _ if links.contains(&number) && place == 1 => Act::Makes,
        _ if renames.contains(&number) && place == 1 => Act::Either,
        _ => Act::Changes,
    }
}

/// Returns the path of an entry, as this process reaches it, and whether it is that of an open file; `None` if it is none in the file
/// system.
fn path(caller: Caller, entry: Entry, given: &[u64; 6]) -> io::Result<Option<(PathBuf, bool)>> {
    let open = |descriptor: usize| Ok(Some((caller.open(given[descriptor]), true)));
    let named = |path: PathBuf| Some((path, false));
    match entry {
        Entry::Path(path) => caller.path(libc::AT_FDCWD as u64, given[path]).map(named),
        Entry::Open(descriptor) => open(descriptor),
        Entry::Socket(address) => Ok(caller.socket(given[address], given[address + 1]).and_then(named)),
        Entry::At(folder, path) if given[path] == 0 => open(folder),
        Entry::At(folder, path) => match caller.path(given[folder], given[path]) {
            // An empty path means what is open.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => open(folder),
            found => found.map(named),
        },
    }
}

/// True if the system's call fails for the same reason.
fn will_fail(error: &io::Error) -> bool {
    let numbers = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG, libc::EFAULT, libc::ESRCH];
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}
