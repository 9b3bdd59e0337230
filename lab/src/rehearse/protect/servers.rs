//! Programs outside of the run that wait for requests on this machine: what they do for the script, they do for real.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

use super::caller::{Caller, path_of_socket};

/// Beginnings of the paths of servers that look up names, take log lines, or show windows.
const PASSIVE: [&str; 6] = [
    "/run/nscd",
    "/run/systemd/journal",
    "/run/systemd/userdb",
    "/run/systemd/io.systemd",
    "/run/systemd/resolve",
    "/tmp/.X11-unix",
];

/// Flag of a socket that waits for requests, in `/proc/net/unix`; state of one in `/proc/net/tcp`.
const WAITS: &str = "00010000";
const LISTENS: &str = "0A";

/// Servers that were there before the run.
#[derive(Debug, Default)]
pub(super) struct Servers {
    /// Paths, and names that begin with a zero.
    names: BTreeSet<Vec<u8>>,
    ports: BTreeSet<u16>,
}

impl Servers {
    /// Lists the servers that wait now.
    pub(super) fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let ports = ["/proc/net/tcp", "/proc/net/tcp6"].map(read);
        Self {
            names: names(&read("/proc/net/unix")),
            ports: ports.iter().flat_map(|list| listed_ports(list)).collect(),
        }
    }

    /// Returns the name of the server whose socket has this address.
    pub(super) fn by_path(&self, caller: Caller, address: &[u8], place: (u64, u64)) -> Option<String> {
        if let [_, _, 0, name @ ..] = address {
            let is_local = address.first().zip(address.get(1)).map(|(a, b)| u16::from_ne_bytes([*a, *b]));
            let name = [&[0], name].concat();
            let found = self.names.contains(&name) && is_local == Some(libc::AF_UNIX as u16);
            return found.then(|| format!("unix:@{}", String::from_utf8_lossy(&name[1..])));
        }
        path_of_socket(address)?;
        let target = caller.socket(place.0, place.1)?.target(true).ok()?;
        let is_passive = PASSIVE.iter().any(|passive| target.path.starts_with(passive));
        let is_one = !is_passive && self.names.contains(target.path.as_os_str().as_bytes());
        is_one.then(|| format!("unix:{}", target.path.display()))
    }

    /// Returns the name of the server that waits at this address of this machine.
    pub(super) fn by_port(&self, address: SocketAddr) -> Option<String> {
        self.ports.contains(&address.port()).then(|| address.to_string())
    }
}

/// Reads the paths of sockets that wait, without links, and the names of those without a path.
fn names(list: &str) -> BTreeSet<Vec<u8>> {
    let name = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.get(7).filter(|_| words.get(3) == Some(&WAITS))?;
        match name.strip_prefix('@') {
            Some(name) => Some([&[0], name.as_bytes()].concat()),
            None => Some(fs::canonicalize(name).ok()?.as_os_str().as_bytes().to_vec()),
        }
    };
    list.lines().filter_map(name).collect()
}

fn listed_ports(list: &str) -> Vec<u16> {
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (own, state) = (words.next()?, words.nth(1)?);
        let port = own.rsplit_once(':')?.1;
        if state == LISTENS { u16::from_str_radix(port, 16).ok() } else { None }
    };
    list.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_the_system_lists_them() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().canonicalize().unwrap().join("socket");
        let _waits = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = Servers::now();
        assert!(found.names.contains(socket.as_os_str().as_bytes()), "{found:?}");
        let address = port.local_addr().unwrap();
        assert_eq!(found.by_port(address), Some(address.to_string()));
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(found.by_port(closed), None);
        let list = "Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 00010000 0001 01 7 @name\n0: 2 0 00000000 0001 03 8 @other\n";
        assert_eq!(names(list), [b"\0name".to_vec()].into());
    }
}
