//! Answers the system calls that the filter hands to the keeper.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_long, seccomp_notif, seccomp_notif_resp};

use super::caller::Caller;
use super::event::Event;
use super::rename::rename;
use super::servers::Servers;
use super::signals;
use super::veto::{Verdict, Veto};

/// Maximum number of addresses and paths that are told.
const MAX_TOLD: usize = 200;
/// Program that compares the number of a file with that of a second name for it, and ends if they differ. Through an overlay the number of a
/// file changes with its first change, as a second name is one.
/// Told that a link is not possible, it copies.
const COMPARES_NUMBERS: &str = "git";
/// Maximum number of bytes of an address that are read: those of a socket with a path.
const MAX_ADDRESS: u64 = 110;
/// Maximum number of messages of one call that are looked at.
const MAX_MESSAGES: u64 = 64;

/// Answer to a call.
enum Answer {
    /// The system makes the call.
    GoOn,
    /// The call was made here, and returns 0.
    Done,
    /// The call fails with this number.
    Fail(i32),
}

/// Answers for all processes of a run.
pub(super) struct Supervisor {
    listener: OwnedFd,
    offline: bool,
    /// Decides on changes of files, if no namespace protects them.
    veto: Option<Veto>,
    /// Addresses of this machine, and servers on it that are not of this run.
    own: Vec<IpAddr>,
    servers: Servers,
    told: BTreeSet<String>,
    /// Groups of processes that the run made.
    groups: BTreeSet<i32>,
}

impl Supervisor {
    pub(super) fn new(listener: OwnedFd, offline: bool, veto: Option<Veto>) -> Self {
        Self {
            listener,
            offline,
            veto,
            own: own_addresses(),
            servers: Servers::now(),
            told: BTreeSet::new(),
            groups: BTreeSet::new(),
        }
    }

    /// Returns the groups of processes that the run made.
    pub(super) fn groups(&self) -> impl Iterator<Item = i32> {
        self.groups.iter().copied()
    }

    pub(super) fn descriptor(&self) -> i32 {
        self.listener.as_raw_fd()
    }

    /// Answers the next call. `tell` is told each address beyond this machine, and each path that must not change, once.
    pub(super) fn answer(&mut self, tell: &mut dyn FnMut(Event)) {
        // SAFETY: all zeros are a good structure, and the system wants them.
        let mut asked: seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for what the call writes.
        let received = unsafe { libc::ioctl(self.descriptor(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut asked) };
        if received < 0 {
            // The caller has ended meanwhile.
            return;
        }
        let answer = self.decide(&asked, tell);
        let (error, flags) = match answer {
            Answer::GoOn => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Done => (0, 0),
            Answer::Fail(number) => (-number, 0),
        };
        let mut response = seccomp_notif_resp { id: asked.id, val: 0, error, flags };
        // SAFETY: the structure is complete. The call fails if the caller has ended meanwhile.
        unsafe { libc::ioctl(self.descriptor(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut response) };
    }

    fn decide(&mut self, asked: &seccomp_notif, tell: &mut dyn FnMut(Event)) -> Answer {
        let (caller, given) = (Caller::from_thread(asked.pid), &asked.data.args);
        let number = c_long::from(asked.data.nr);
        if let Some(aim) = signals::aim(caller, number, given) {
            self.refuse(aim, tell);
            return Answer::Fail(libc::EPERM);
        }
        self.groups.extend(signals::group(caller, number, given));
        match self.veto.as_ref().map_or(Verdict::GoOn, |veto| veto.judge(caller, number, given)) {
            Verdict::GoOn => {}
            Verdict::Fails(error) => return Answer::Fail(error),
            Verdict::Refused(path) => {
                self.refuse(path.display().to_string(), tell);
                return Answer::Fail(libc::EROFS);
            }
        }
        let here = libc::AT_FDCWD as u64;
        match number {
            // Without overlays, the system makes all renames and links.
            libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat if self.veto.is_some() => Answer::GoOn,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename | libc::SYS_link if self.veto.is_some() => Answer::GoOn,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => linked(caller),
            libc::SYS_linkat => linked(caller),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => renamed(caller, (here, given[0]), (here, given[1]), 0),
            libc::SYS_renameat => renamed(caller, (given[0], given[1]), (given[2], given[3]), 0),
            libc::SYS_renameat2 => renamed(caller, (given[0], given[1]), (given[2], given[3]), given[4] as u32),
            libc::SYS_connect => self.reached(caller, given[1], given[2], tell),
            libc::SYS_sendto => self.reached(caller, given[4], given[5], tell),
            libc::SYS_sendmsg => self.reached_by_message(caller, given[1], tell),
            libc::SYS_sendmmsg => {
                // Each is a message header of 56 bytes and a length, in 64.
                let mut messages = (0..given[2].min(MAX_MESSAGES)).map(|number| given[1] + 64 * number);
                let refused = messages.find_map(|message| match self.reached_by_message(caller, message, tell) {
                    Answer::Fail(number) => Some(number),
                    _ => None,
                });
                refused.map_or(Answer::GoOn, Answer::Fail)
            }
            _ => Answer::GoOn,
        }
    }

    /// Tells once what was refused.
    fn refuse(&mut self, what: String, tell: &mut dyn FnMut(Event)) {
        if self.told.len() < MAX_TOLD && self.told.insert(what.clone()) {
            tell(Event::Vetoed(what));
        }
    }

    /// The header of a message begins with its address and the length of that.
    fn reached_by_message(&mut self, caller: Caller, message: u64, tell: &mut dyn FnMut(Event)) -> Answer {
        let Ok(header) = caller.bytes(message, 16) else { return Answer::GoOn };
        let number = |at: usize| u64::from_ne_bytes(header[at..at + 8].try_into().unwrap_or_default());
        if header.len() < 16 || number(0) == 0 {
            return Answer::GoOn;
        }
        self.reached(caller, number(0), number(8) & u64::from(u32::MAX), tell)
    }

    fn reached(&mut self, caller: Caller, address: u64, length: u64, tell: &mut dyn FnMut(Event)) -> Answer {
        let bytes = caller.bytes(address, length.min(MAX_ADDRESS) as usize).unwrap_or_default();
        let of_the_internet = internet_address(&bytes);
        let beyond = of_the_internet.filter(|address| !self.is_of_this_machine(address.ip()));
        if let (true, Some(address)) = (self.offline, beyond) {
            self.refuse(format!("connection to {address}"), tell);
            return Answer::Fail(libc::ENETUNREACH);
        }
        // Other programs of this machine do for real what the script asks of them.
        let told = match (of_the_internet, beyond) {
            (_, Some(address)) => Some(address.to_string()),
            (Some(address), None) => self.servers.by_port(address),
            (None, None) => self.servers.by_path(caller, &bytes, (address, length)),
        };
        if let Some(text) = told
            && self.told.len() < MAX_TOLD
            && self.told.insert(text.clone())
        {
            tell(Event::Contacted(text));
        }
        Answer::GoOn
    }

    fn is_of_this_machine(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || address.is_unspecified() || self.own.contains(&address)
    }
}

/// Reads a `sockaddr` of the internet; `None` for another one.
fn internet_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let address = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Lists the addresses of this machine's interfaces.
fn own_addresses() -> Vec<IpAddr> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call writes the address of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at: *const libc::ifaddrs = first;
    // SAFETY: the list ends with null.
    while let Some(one) = unsafe { at.as_ref() } {
        if !one.ifa_addr.is_null() {
            // SAFETY: an address of an interface has at least these two bytes, and as many more as its family needs.
            let bytes = unsafe {
                let family = i32::from((*one.ifa_addr).sa_family);
                let length = if family == libc::AF_INET6 { 28 } else { 16 };
                std::slice::from_raw_parts(one.ifa_addr.cast::<u8>(), length)
            };
            found.extend(internet_address(bytes).map(|address| address.ip()));
        }
        at = one.ifa_next;
    }
    // SAFETY: it is the list from above.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// Answers a call that gives a file a second name.
fn linked(caller: Caller) -> Answer {
    let compares = caller.program().is_some_and(|name| name == COMPARES_NUMBERS);
    if compares { Answer::Fail(libc::EXDEV) } else { Answer::GoOn }
}

/// Answers a rename: those that an overlay refuses are made here. The others are the system's.
fn renamed(caller: Caller, from: (u64, u64), to: (u64, u64), flags: u32) -> Answer {
    let entry = |at: (u64, u64)| caller.path(at.0, at.1).and_then(|named| named.entry());
    let (Ok((_from, from)), Ok((_to, to))) = (entry(from), entry(to)) else { return Answer::GoOn };
    let is_refused = || -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let source = std::fs::symlink_metadata(&from)?;
        let folder = |path: &std::path::Path| std::fs::metadata(path.parent().unwrap_or(path));
        let gives_a_folder = flags & libc::RENAME_EXCHANGE != 0 && std::fs::symlink_metadata(&to)?.is_dir();
        Ok(source.is_dir() || gives_a_folder || folder(&from)?.dev() != folder(&to)?.dev())
    };
    if !is_refused().unwrap_or(false) {
        return Answer::GoOn;
    }
    let ids = caller.ids();
    let _as_the_caller = ids.map(|(user, group)| AsUser::take(user, group));
    match rename(&from, &to, flags) {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Fail(error.raw_os_error().unwrap_or(libc::EXDEV)),
    }
}

/// While this exists, the system checks this thread's file accesses as another user's.
struct AsUser {
    user: u32,
    group: u32,
}

impl AsUser {
    fn take(user: u32, group: u32) -> Self {
        // SAFETY: the calls take numbers alone, and concern this thread.
        unsafe {
            let before = (libc::setfsgid(group), libc::setfsuid(user));
            Self { group: before.0 as u32, user: before.1 as u32 }
        }
    }
}

impl Drop for AsUser {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            libc::setfsuid(self.user);
            libc::setfsgid(self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_system_lays_them_out() {
        let mut bytes = vec![0u8; 16];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[2..8].copy_from_slice(&[1, 187, 192, 0, 2, 7]);
        assert_eq!(internet_address(&bytes).unwrap().to_string(), "192.0.2.7:443");
        bytes[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        assert_eq!(internet_address(&bytes), None);
        assert_eq!(internet_address(&bytes[..1]), None);
        assert!(own_addresses().iter().any(IpAddr::is_loopback), "{:?}", own_addresses());
    }
}
