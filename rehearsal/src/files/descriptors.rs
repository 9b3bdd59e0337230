//! Changes through what is already open, and sockets that have a path.

use std::ffi::{CString, c_char, c_int, c_void};

use super::copies;
use super::look::looked;
use super::open::failed;
use super::protection::{Protection, protection};
use super::real::real;
use super::system::{HERE, Outcome, text};

/// Returns the path of the copy of an open original; `None` for anything else.
fn copy_of_open(descriptor: c_int) -> Option<Outcome<CString>> {
    let copy = copies::changed_open(protection()?, descriptor).transpose()?;
    Some(copy.and_then(|copy| text(&copy)))
}

macro_rules! on_open {
    ($($name:ident by $path_call:ident ($($more:ident: $type:ty),*) then ($($last:expr),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(descriptor: c_int $(, $more: $type)*) -> c_int {
            match copy_of_open(descriptor) {
                None => real!($name as fn(c_int $(, $type)*) -> c_int, -1; descriptor $(, $more)*),
                // The copy's path is not protected, so that this changes the copy itself.
                Some(Ok(copy)) => super::change::$path_call(copy.as_ptr() $(, $last)*),
                Some(Err(error)) => failed(error, -1),
            }
        }
    )*};
}

on_open! {
    fchmod by chmod (mode: libc::mode_t) then (mode);
    fchown by chown (user: libc::uid_t, group: libc::gid_t) then (user, group);
    futimes by utimes (times: *const c_void) then (times);
    fsetxattr by setxattr (name: *const c_char, value: *const c_void, size: usize, flags: c_int) then (name, value, size, flags);
    fremovexattr by removexattr (name: *const c_char) then (name);
}

#[unsafe(no_mangle)]
extern "C" fn futimens(descriptor: c_int, times: *const c_void) -> c_int {
    match copy_of_open(descriptor) {
        None => real!(futimens as fn(c_int, *const c_void) -> c_int, -1; descriptor, times),
        Some(Ok(copy)) => super::change::utimensat(HERE, copy.as_ptr(), times, 0),
        Some(Err(error)) => failed(error, -1),
    }
}

/// Bytes of a socket's address before its path.
const BEFORE_PATH: usize = 2;

/// Returns the path in a socket's address; `None` if it has none in the file system.
fn socket_path<'a>(address: *const c_void, length: libc::socklen_t) -> Option<&'a [u8]> {
    if address.is_null() || (length as usize) <= BEFORE_PATH {
        return None;
    }
    // SAFETY: callers pass an address of this length, which lives as long as the call.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length as usize) };
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let path = &bytes[BEFORE_PATH..];
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    (family == libc::AF_UNIX && end > 0).then_some(&path[..end])
}

/// Runs a call with the address of a socket at another path. A path that is too long for an address is given through its folder.
fn with_address(path: &[u8], call: impl FnOnce(*const c_void, libc::socklen_t) -> c_int) -> c_int {
    // SAFETY: all zeros are a good address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut folder = -1;
    let short = if path.len() < address.sun_path.len() {
        path.to_vec()
    } else {
        let Ok(above) = text(copies::parent(path)) else { return failed(libc::EINVAL, -1) };
        // SAFETY: the path ends with a zero.
        folder = unsafe {
            libc::syscall(libc::SYS_openat, HERE, above.as_ptr(), libc::O_PATH | libc::O_CLOEXEC, 0) as c_int
        };
        let name = &path[copies::parent(path).len()..];
        [format!("/proc/self/fd/{folder}").as_bytes(), name].concat()
    };
    let result = if short.len() < address.sun_path.len() {
        for (to, from) in address.sun_path.iter_mut().zip(&short) {
            *to = *from as c_char;
        }
        call((&raw const address).cast(), size_of::<libc::sockaddr_un>() as libc::socklen_t)
    } else {
        failed(libc::ENAMETOOLONG, -1)
    };
    if folder >= 0 {
        // SAFETY: it was opened above.
        unsafe { libc::syscall(libc::SYS_close, folder) };
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn bind(socket: c_int, address: *const c_void, length: libc::socklen_t) -> c_int {
    let real_one = |address, length| real!(bind as fn(c_int, *const c_void, libc::socklen_t) -> c_int, -1; socket, address, length);
    match protection().and_then(|protection| Some((protection, socket_path(address, length)?))) {
        None => real_one(address, length),
        Some((protection, path)) => match copies::made(protection, HERE, path) {
            Ok(copy) if copy == path => real_one(address, length),
            Ok(copy) => with_address(&copy, real_one),
            Err(libc::EEXIST) => failed(libc::EADDRINUSE, -1),
            Err(error) => failed(error, -1),
        },
    }
}

#[unsafe(no_mangle)]
extern "C" fn connect(socket: c_int, address: *const c_void, length: libc::socklen_t) -> c_int {
    let real_one = |address, length| real!(connect as fn(c_int, *const c_void, libc::socklen_t) -> c_int, -1; socket, address, length);
    let found = protection().filter(|protection| protection.has_changes()).and_then(|protection| {
        let path = text(socket_path(address, length)?).ok()?;
        Some(looked_socket(protection, &path))
    });
    match found {
        Some(Ok(Some(path))) => with_address(path.as_bytes(), real_one),
        Some(Err(error)) => failed(error, -1),
        _ => real_one(address, length),
    }
}

fn looked_socket(protection: &Protection, path: &CString) -> Outcome<Option<CString>> {
    looked(protection, HERE, path.as_ptr(), true)
}
