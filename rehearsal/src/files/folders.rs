//! Reads folders, and the working folder.

use std::ffi::{c_char, c_int, c_void};

use super::copies::{is_mixed, listing};
use super::look::at;
use super::open::{failed, given};
use super::place::{absolute, path_of, resolve};
use super::protection::{Protection, protection};
use super::real::real;
use super::system::{self, HERE, Outcome, text};

/// The C library's `DIR`.
type Stream = *mut c_void;

/// Returns the protection if there are any changes that folders must show.
fn changes() -> Option<&'static Protection> {
    protection().filter(|protection| protection.has_changes())
}

#[unsafe(no_mangle)]
extern "C" fn opendir(path: *const c_char) -> Stream {
    let real_one = |path: *const c_char| real!(opendir as fn(*const c_char) -> Stream, std::ptr::null_mut(); path);
    let mixed = changes().and_then(|protection| mixed(protection, path));
    match mixed {
        Some(Ok(path)) => match text(&path) {
            Ok(path) => real_one(path.as_ptr()),
            Err(error) => failed(error, std::ptr::null_mut()),
        },
        Some(Err(error)) => failed(error, std::ptr::null_mut()),
        None => at(HERE, path, true, std::ptr::null_mut(), |_, path| real_one(path)),
    }
}

/// Returns the listing of a folder that has originals and copies; `None` for any other path.
fn mixed(protection: &Protection, path: *const c_char) -> Option<Outcome<Vec<u8>>> {
    let whole = absolute(protection, HERE, given(path).ok()?).ok()?;
    let place = resolve(protection, &whole, true).ok()?;
    is_mixed(protection, &place).then(|| listing(protection, &place))
}

#[unsafe(no_mangle)]
extern "C" fn fdopendir(descriptor: c_int) -> Stream {
    if let Some(protection) = changes()
        && let Err(error) = list_instead(protection, descriptor)
    {
        return failed(error, std::ptr::null_mut());
    }
    real!(fdopendir as fn(c_int) -> Stream, std::ptr::null_mut(); descriptor)
}

/// Replaces the target of a folder's descriptor by a fresh listing: the one made when the folder was opened may be out
/// of date.
fn list_instead(protection: &Protection, descriptor: c_int) -> Outcome {
    let Ok(path) = path_of(descriptor) else { return Ok(()) };
    let Ok(place) = resolve(protection, protection.meant(&path), true) else { return Ok(()) };
    if !is_mixed(protection, &place) {
        return Ok(());
    }
    let listed = text(&listing(protection, &place)?)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero; the descriptors are the caller's and the one that was just opened.
    unsafe {
        let opened = libc::syscall(libc::SYS_openat, HERE, listed.as_ptr(), flags, 0);
        if opened < 0 {
            return Err(super::real::errno());
        }
        libc::syscall(libc::SYS_dup3, opened, descriptor, libc::O_CLOEXEC);
        libc::syscall(libc::SYS_close, opened);
    }
    if let Some(before) = listing_of(protection, &path) {
        system::remove_all(&before);
    }
    Ok(())
}

/// Returns the listing to which a path belongs.
fn listing_of(protection: &Protection, path: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(protection.listings.as_slice())?.strip_prefix(b"/")?;
    let number = rest.split(|byte| *byte == b'/').next()?;
    Some([protection.listings.as_slice(), b"/", number].concat())
}

#[unsafe(no_mangle)]
extern "C" fn closedir(stream: Stream) -> c_int {
    let listing = changes().and_then(|protection| {
        // SAFETY: the caller's stream is open until it is closed below.
        let path = path_of(unsafe { libc::dirfd(stream.cast()) }).ok()?;
        listing_of(protection, &path)
    });
    let result = real!(closedir as fn(Stream) -> c_int, -1; stream);
    if let Some(listing) = listing {
        system::remove_all(&listing);
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn chdir(path: *const c_char) -> c_int {
    at(HERE, path, true, -1, |_, path| real!(chdir as fn(*const c_char) -> c_int, -1; path))
}

/// Returns the working folder as the script sees it. A folder without an original is in fact a copy.
#[unsafe(no_mangle)]
extern "C" fn getcwd(room: *mut c_char, size: usize) -> *mut c_char {
    let found = real!(getcwd as fn(*mut c_char, usize) -> *mut c_char, std::ptr::null_mut(); room, size);
    if let Some(protection) = changes().filter(|_| !found.is_null())
        && let Ok(path) = given(found)
    {
        let meant = protection.meant(path);
        if meant.len() < path.len() {
            let meant = meant.to_vec();
            // SAFETY: the room has a longer text in it, and a zero behind that.
            unsafe {
                std::ptr::copy_nonoverlapping(meant.as_ptr().cast(), found, meant.len());
                found.add(meant.len()).write(0);
            }
        }
    }
    found
}

/// Returns the path without links, as the script sees it. Without any changes, or without a path, the C library answers.
#[unsafe(no_mangle)]
extern "C" fn realpath(path: *const c_char, room: *mut c_char) -> *mut c_char {
    let place = changes().and_then(|protection| {
        let whole = absolute(protection, HERE, given(path).ok()?).ok()?;
        Some(resolve(protection, &whole, true).map(|place| (place.exists(), place.path)))
    });
    let found = match place {
        None => {
            return real!(realpath as fn(*const c_char, *mut c_char) -> *mut c_char, std::ptr::null_mut(); path, room);
        }
        Some(Err(error)) => return failed(error, std::ptr::null_mut()),
        Some(Ok((false, _))) => return failed(libc::ENOENT, std::ptr::null_mut()),
        Some(Ok((true, path))) => text(&path),
    };
    let Ok(found) = found else { return failed(libc::EINVAL, std::ptr::null_mut()) };
    let bytes = found.as_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        return failed(libc::ENAMETOOLONG, std::ptr::null_mut());
    }
    if room.is_null() {
        // SAFETY: a text that ends with a zero; the caller frees the copy, as it would the C library's.
        return unsafe { libc::strdup(found.as_ptr()) };
    }
    // SAFETY: the room of a caller has `PATH_MAX` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), room, bytes.len()) };
    room
}
