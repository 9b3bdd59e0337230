//! Decides on system calls that change files, where no namespace protects them.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use libc::c_long;

use super::caller::Caller;
use super::changes::{Entry, Links, changes, limits, reaches, refused};
use super::descendants::is_descendant;
use super::filter::Rule;
use super::lookup::{Named, Target};
use super::policy::{Policy, holds_bytes};
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
    pub(super) fn from_wanted(wanted: &Wanted) -> Self {
        let calls = changes().into_iter().map(|(number, _, entries, links)| (number, (entries, links))).collect();
        Self { policy: Policy::from_wanted(wanted), calls }
    }

    /// Returns the rules for the filter; none where this is not known to hold.
    pub(super) fn rules() -> Vec<(c_long, Rule)> {
        let changes: Vec<(c_long, Rule)> = changes().into_iter().map(|(number, rule, ..)| (number, rule)).collect();
        if changes.is_empty() {
            return changes;
        }
        changes.into_iter().chain(reaches()).chain(limits()).chain(refused()).collect()
    }

    /// Decides on a call.
    pub(super) fn judge(&self, caller: Caller, number: c_long, given: &[u64; 6]) -> Verdict {
        if let Some(process) = reached(caller, number, given) {
            let memory = || format!("/proc/{process}/mem").into();
            return if is_descendant(process) { Verdict::GoOn } else { Verdict::Refused(memory()) };
        }
        if raises_core_files(number, given) {
            return Verdict::Fails(libc::EPERM);
        }
        let Some((entries, links)) = self.calls.get(&number) else { return Verdict::GoOn };
        let flags = match flags(caller, number, given) {
            Ok(flags) => flags,
            Err(error) => return Verdict::from_error(&error),
        };
        let is_nameless = flags & libc::O_TMPFILE as u64 == libc::O_TMPFILE as u64;
        let only_reads = flags & WRITES == 0;
        if opens(number) && (is_nameless || only_reads) {
            return Verdict::GoOn;
        }
        let follow = match *links {
            Links::Followed | Links::ByFlags if opens(number) => follows(flags),
            Links::Followed | Links::ByFlags => true,
            Links::Itself => false,
            Links::Unless(argument, unless) => given[argument] & u64::from(unless) == 0,
            Links::If(argument, flag) => given[argument] & u64::from(flag) != 0,
        };
        for (place, entry) in entries.iter().enumerate() {
            let (named, is_open) = match named(caller, number, *entry, given) {
                Ok(Some(named)) => named,
                Ok(None) => continue,
                Err(error) => return Verdict::from_error(&error),
            };
            // The second name of a link or a rename is never followed. What stands for an open file is a link to it.
            let verdict = match named.target(is_open || follow && place == 0) {
                Ok(target) => self.on(act(number, place, flags), number, target),
                Err(error) => Verdict::from_error(&error),
            };
            if verdict != Verdict::GoOn {
                return verdict;
            }
        }
        Verdict::GoOn
    }

    /// Decides on a change of an entry. Where the system's call fails anyway, it is not made: the system could find another entry than was
    /// found here.
    fn on(&self, act: Act, number: c_long, target: Target) -> Verdict {
        let is_link = target.found.as_ref().is_some_and(std::fs::Metadata::is_symlink);
        match act {
            Act::Makes if target.exists() && number == libc::SYS_bind => Verdict::Fails(libc::EADDRINUSE),
            Act::Makes if target.exists() => Verdict::Fails(libc::EEXIST),
            Act::Changes | Act::Opens if !target.exists() => Verdict::Fails(libc::ENOENT),
            Act::Opens | Act::OpensOrMakes if is_link => Verdict::Fails(libc::ELOOP),
            // Folders cannot be opened for writing; pipes, sockets and devices hold nothing, but for disks.
            Act::Opens | Act::OpensOrMakes if target.exists() && !holds_bytes(&target) => Verdict::GoOn,
            _ if self.policy.allows(&target) => Verdict::GoOn,
            _ => Verdict::Refused(target.path),
        }
    }
}

/// What is done with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The system may make it.
    GoOn,
    /// It would change this path, and is not made.
    Refused(PathBuf),
    /// It fails with this number.
    Fails(i32),
}

impl Verdict {
    fn from_error(error: &io::Error) -> Self {
        Self::Fails(error.raw_os_error().unwrap_or(libc::EROFS))
    }
}

/// True if a process raises the limit for the file that the system writes when a program crashes: no call names that file.
fn raises_core_files(number: c_long, given: &[u64; 6]) -> bool {
    let resource = match number {
        libc::SYS_prlimit64 if given[2] != 0 => given[1],
        libc::SYS_setrlimit => given[0],
        _ => return false,
    };
    resource as u32 == libc::RLIMIT_CORE
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

/// Flags of `open` with which something may change.
const WRITES: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;

/// True if `open` follows a link at the end of a path.
fn follows(flags: u64) -> bool {
    let exclusive = (libc::O_CREAT | libc::O_EXCL) as u64;
    flags & libc::O_NOFOLLOW as u64 == 0 && flags & exclusive != exclusive
}

fn opens(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if [libc::SYS_open, libc::SYS_creat].contains(&number) {
        return true;
    }
    [libc::SYS_openat, libc::SYS_openat2].contains(&number)
}

/// Returns the flags with which a call opens; 0 for other calls.
fn flags(caller: Caller, number: c_long, given: &[u64; 6]) -> io::Result<u64> {
    Ok(match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => given[1],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC) as u64,
        libc::SYS_openat => given[2],
        libc::SYS_openat2 => {
            let bytes = caller.bytes(given[2], 8)?.try_into();
            bytes.map(u64::from_ne_bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?
        }
        _ => 0,
    })
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

/// Returns the path of an entry, and whether it is that of an open file; `None` if it is none in the file system.
fn named(caller: Caller, number: c_long, entry: Entry, given: &[u64; 6]) -> io::Result<Option<(Named, bool)>> {
    let open = |descriptor: usize| Ok(Some((caller.open(given[descriptor]), true)));
    let named = |path: Named| Some((path, false));
    match entry {
        Entry::Path(path) => caller.path(libc::AT_FDCWD as u64, given[path]).map(named),
        Entry::Open(descriptor) => open(descriptor),
        Entry::Socket(address) => Ok(caller.socket(given[address], given[address + 1]).and_then(named)),
        Entry::At(folder, path) if number == libc::SYS_openat2 => {
            caller.path_by_rules(given[folder], given[path], given[2]).map(named)
        }
        Entry::At(folder, path) if given[path] == 0 => open(folder),
        Entry::At(folder, path) => match caller.path(given[folder], given[path]) {
            // An empty path means what is open.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => open(folder),
            found => found.map(named),
        },
    }
}
