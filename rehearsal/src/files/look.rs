//! Calls that look at the target of a path.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use super::open::{failed, given};
use super::place::{Found, absolute, path_of, resolve};
use super::protection::{Protection, is_within, protection};
use super::real::real;
use super::system::{HERE, Outcome, text};

/// Returns the path to look at; `None` if it is the caller's own.
pub(super) fn looked(
    protection: &Protection,
    folder: c_int,
    path: *const c_char,
    follow: bool,
) -> Outcome<Option<CString>> {
    let path = given(path)?;
    if path.is_empty() {
        return Ok(None);
    }
    let whole = absolute(protection, folder, path)?;
    if !protection.protects(&whole) {
        return Ok(None);
    }
    let place = resolve(protection, &whole, follow)?;
    match place.found {
        Found::Removed => Err(libc::ENOENT),
        _ => text(&place.actual(protection)).map(Some),
    }
}

/// Runs a call with the path to look at.
pub(super) fn at<T>(
    folder: c_int,
    path: *const c_char,
    follow: bool,
    failure: T,
    call: impl FnOnce(c_int, *const c_char) -> T,
) -> T {
    let Some(protection) = protection().filter(|p| p.has_changes() && !path.is_null()) else {
        return call(folder, path);
    };
    match looked(protection, folder, path, follow) {
        Ok(None) => call(folder, path),
        Ok(Some(other)) => call(HERE, other.as_ptr()),
        Err(error) => failed(error, failure),
    }
}

/// Defines functions on a path, functions with a number before the path, and functions that begin at a folder: name,
/// whether a link is followed, further arguments, result, and its value on failure.
macro_rules! looks {
    ($($name:ident ($($more:ident: $type:ty),*) $follow:literal -> $result:ty, $failure:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(path: *const c_char $(, $more: $type)*) -> $result {
            at(HERE, path, $follow, $failure, |_, path| {
                real!($name as fn(*const c_char $(, $type)*) -> $result, $failure; path $(, $more)*)
            })
        }
    )*};
}

looks! {
    stat(found: *mut c_void) true -> c_int, -1;
    stat64(found: *mut c_void) true -> c_int, -1;
    lstat(found: *mut c_void) false -> c_int, -1;
    lstat64(found: *mut c_void) false -> c_int, -1;
    access(how: c_int) true -> c_int, -1;
    euidaccess(how: c_int) true -> c_int, -1;
    readlink(room: *mut c_char, size: usize) false -> isize, -1;
    statfs(found: *mut c_void) true -> c_int, -1;
    statfs64(found: *mut c_void) true -> c_int, -1;
    statvfs(found: *mut c_void) true -> c_int, -1;
    statvfs64(found: *mut c_void) true -> c_int, -1;
    getxattr(name: *const c_char, value: *mut c_void, size: usize) true -> isize, -1;
    lgetxattr(name: *const c_char, value: *mut c_void, size: usize) false -> isize, -1;
    listxattr(list: *mut c_char, size: usize) true -> isize, -1;
    llistxattr(list: *mut c_char, size: usize) false -> isize, -1;
    pathconf(name: c_int) true -> libc::c_long, -1;
}

macro_rules! old_looks {
    ($($name:ident $follow:literal)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(version: c_int, path: *const c_char, found: *mut c_void) -> c_int {
            at(HERE, path, $follow, -1, |_, path| {
                real!($name as fn(c_int, *const c_char, *mut c_void) -> c_int, -1; version, path, found)
            })
        }
    )*};
}

// Programs that were linked with a C library before 2.33 call these.
old_looks! { __xstat true __xstat64 true __lxstat false __lxstat64 false }

macro_rules! looks_at {
    ($($name:ident ($($before:ident: $first:ty),*) ($($more:ident: $type:ty),*) flags $flags:expr => $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($before: $first,)* folder: c_int, path: *const c_char $(, $more: $type)*) -> $result {
            at_or_open(folder, path, $flags, |folder, path| {
                real!($name as fn($($first,)* c_int, *const c_char $(, $type)*) -> $result, -1; $($before,)* folder, path $(, $more)*)
            })
        }
    )*};
}

looks_at! {
    fstatat()(found: *mut c_void, flags: c_int) flags flags => c_int;
    fstatat64()(found: *mut c_void, flags: c_int) flags flags => c_int;
    __fxstatat(version: c_int)(found: *mut c_void, flags: c_int) flags flags => c_int;
    __fxstatat64(version: c_int)(found: *mut c_void, flags: c_int) flags flags => c_int;
    statx()(flags: c_int, mask: c_uint, found: *mut c_void) flags flags => c_int;
    faccessat()(how: c_int, flags: c_int) flags flags => c_int;
    readlinkat()(room: *mut c_char, size: usize) flags libc::AT_SYMLINK_NOFOLLOW => isize;
}

/// As [`at`]; an empty path means an open file.
fn at_or_open<T: From<i8>>(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl FnOnce(c_int, *const c_char) -> T,
) -> T {
    let is_empty = given(path).is_ok_and(<[u8]>::is_empty);
    if is_empty && let Some(meant) = open_listing(folder) {
        return call(HERE, meant.as_ptr());
    }
    at(folder, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0, T::from(-1), call)
}

/// Returns the folder that an open listing of originals and copies stands for.
fn open_listing(descriptor: c_int) -> Option<CString> {
    let protection = protection().filter(|protection| protection.has_changes())?;
    let path = path_of(descriptor).ok().filter(|path| is_within(path, &protection.listings))?;
    let place = resolve(protection, protection.meant(&path), true).ok()?;
    text(&place.actual(protection)).ok()
}

macro_rules! open_files {
    ($($name:ident ($($before:ident: $type:ty),*) by $by_path:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($before: $type,)* descriptor: c_int, found: *mut c_void) -> c_int {
            match open_listing(descriptor) {
                Some(meant) => $by_path($($before,)* meant.as_ptr(), found),
                None => real!($name as fn($($type,)* c_int, *mut c_void) -> c_int, -1; $($before,)* descriptor, found),
            }
        }
    )*};
}

open_files! {
    fstat() by stat;
    fstat64() by stat64;
    __fxstat(version: c_int) by __xstat;
    __fxstat64(version: c_int) by __xstat64;
}
