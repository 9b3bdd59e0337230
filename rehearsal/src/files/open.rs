//! Opening files.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::copies::{self, Use};
use super::place::{Found, absolute, path_of, resolve};
use super::protection::{Protection, protection};
use super::real::{real, set_errno};
use super::room::{told, told_of};
use super::system::{HERE, Outcome, text};

/// Returns the bytes of a caller's path.
pub(super) fn given<'a>(path: *const c_char) -> Outcome<&'a [u8]> {
    if path.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: callers of the C library pass texts that end with a zero; it stays as long as the call.
    Ok(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Sets the error, and returns the result of a call whose path was not found.
pub(super) fn failed<T>(error: c_int, result: T) -> T {
    set_errno(error);
    result
}

/// Returns the path to open; `None` if it is the caller's own.
fn opened(protection: &Protection, folder: c_int, path: *const c_char, flags: c_int) -> Outcome<Option<CString>> {
    let path = given(path)?;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    if path.is_empty() || !writes && !protection.has_changes() {
        return Ok(None);
    }
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    let follow = flags & libc::O_NOFOLLOW == 0 && flags & exclusive != exclusive;
    let whole = absolute(protection, folder, path)?;
    if !writes && !protection.protects(&whole) {
        return Ok(None);
    }
    let place = match resolve(protection, &whole, follow) {
        Ok(place) => place,
        // The system reports what is wrong with a path that leads nowhere.
        Err(_) if !protection.has_changes() => return Ok(None),
        Err(error) => return Err(error),
    };
    if !protection.protects(&place.path) {
        return text(&place.path).map(Some);
    }
    let actual = place.actual(protection);
    let is = super::system::lstat(&actual).map(|stat| super::system::kind(&stat));
    match is {
        Ok(libc::S_IFREG) if place.exists() => {}
        Ok(libc::S_IFDIR) if flags & libc::O_TMPFILE == libc::O_TMPFILE => {
            return copies::changed(protection, HERE, &place.path, true, Use::Change)
                .and_then(|path| text(&path))
                .map(Some);
        }
        Ok(libc::S_IFDIR) if copies::is_mixed(protection, &place) => {
            return text(&copies::listing(protection, &place)?).map(Some);
        }
        // Folders, devices and pipes are opened as they are; so is a link that is not followed.
        Ok(_) if place.exists() => return text(&actual).map(Some),
        _ if place.found == Found::Removed && !writes => return Err(libc::ENOENT),
        _ => {}
    }
    if !writes {
        return text(&actual).map(Some);
    }
    if flags & exclusive == exclusive && place.exists() {
        return Err(libc::EEXIST);
    }
    let how = match (flags & libc::O_CREAT != 0, flags & libc::O_TRUNC != 0) {
        _ if !place.exists() && flags & libc::O_CREAT == 0 => return Err(libc::ENOENT),
        _ if !place.exists() => Use::Make,
        (_, true) => Use::Empty,
        _ => Use::Change,
    };
    let copy = copies::changed(protection, HERE, &place.path, false, how)?;
    text(&copy).map(Some)
}

/// Returns the path that a process which is started later opens; `None` if it is the caller's own.
pub(super) fn opened_path(protection: &Protection, path: *const c_char, flags: c_int) -> Outcome<Option<CString>> {
    opened(protection, HERE, path, flags)
}

/// Runs a call with the path to open.
fn with_opened(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    let result = match protection().map(|protection| opened(protection, folder, path, flags)) {
        None | Some(Ok(None)) => call(folder, path),
        Some(Ok(Some(other))) => call(HERE, other.as_ptr()),
        Some(Err(error)) => failed(error, -1),
    };
    told(path, result)
}

/// Defines functions that open. Their last argument is a mode, which counts only if a file is made. If a caller leaves it
/// out, its register has any value.
macro_rules! opens {
    ($($name:ident $at:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
            with_opened(HERE, path, flags, |folder, path| {
                real!($at as fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int, -1; folder, path, flags, mode)
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $at(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
            with_opened(folder, path, flags, |folder, path| {
                real!($at as fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int, -1; folder, path, flags, mode)
            })
        }
    )*};
}

opens! { open openat open64 openat64 }

/// Defines the variants for programs that are compiled with checks, and `creat`.
macro_rules! opens_checked {
    ($($name:ident $at:ident $creat:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            open64(path, flags, 0)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $at(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
            openat64(folder, path, flags, 0)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $creat(path: *const c_char, mode: libc::mode_t) -> c_int {
            open64(path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode)
        }
    )*};
}

opens_checked! { __open_2 __openat_2 creat __open64_2 __openat64_2 creat64 }

/// Returns the flags that a stream's mode stands for.
fn flags_of(mode: *const c_char) -> c_int {
    let mode = given(mode).unwrap_or_default();
    let has = |letter: u8| mode.contains(&letter);
    let access = if has(b'+') {
        libc::O_RDWR
    } else if has(b'r') {
        libc::O_RDONLY
    } else {
        libc::O_WRONLY
    };
    let made = match mode.first() {
        Some(b'w') => libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => libc::O_CREAT | libc::O_APPEND,
        _ => 0,
    };
    access | made | if has(b'x') { libc::O_EXCL } else { 0 }
}

/// Runs a call that opens a stream, with the path to open.
fn stream(path: *const c_char, mode: *const c_char, call: impl FnOnce(*const c_char) -> *mut c_void) -> *mut c_void {
    // Without a path, the call changes the mode of a stream.
    let protection = protection().filter(|_| !path.is_null());
    let result = match protection.map(|protection| opened(protection, HERE, path, flags_of(mode))) {
        None | Some(Ok(None)) => call(path),
        Some(Ok(Some(other))) => call(other.as_ptr()),
        Some(Err(error)) => failed(error, std::ptr::null_mut()),
    };
    told_of(path, result)
}

/// Returns the descriptor of a stream.
fn fileno(stream: *mut c_void) -> c_int {
    // SAFETY: callers pass an open stream.
    unsafe { libc::fileno(stream.cast()) }
}

macro_rules! streams {
    ($($open:ident $again:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $open(path: *const c_char, mode: *const c_char) -> *mut c_void {
            stream(path, mode, |path| {
                real!($open as fn(*const c_char, *const c_char) -> *mut c_void, std::ptr::null_mut(); path, mode)
            })
        }

        #[unsafe(no_mangle)]
        extern "C" fn $again(path: *const c_char, mode: *const c_char, file: *mut c_void) -> *mut c_void {
            // Without a path, the stream's own file is opened again, perhaps for writing.
            let own = path.is_null().then(|| path_of(fileno(file)).and_then(|path| text(&path)).ok()).flatten();
            let is_written = flags_of(mode) & (libc::O_ACCMODE | libc::O_TRUNC) != 0;
            let own = own.filter(|own| is_written && protection().is_some_and(|found| found.protects(own.as_bytes())));
            let path = own.as_ref().map_or(path, |own| own.as_ptr());
            stream(path, mode, |path| {
                real!($again as fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void, std::ptr::null_mut(); path, mode, file)
            })
        }
    )*};
}

streams! { fopen freopen fopen64 freopen64 }

/// Runs a call that fills in the last letters of a name, and returns these letters to the caller.
fn unique(template: *mut c_char, suffix: c_int, call: impl FnOnce(*mut c_char) -> c_int) -> c_int {
    let Some(protection) = protection() else { return call(template) };
    let Ok(given) = given(template) else { return failed(libc::EINVAL, -1) };
    let place = absolute(protection, HERE, given).and_then(|path| resolve(protection, &path, false));
    let Ok(place) = place.map(|place| place.path).map(|path| (protection.protects(&path), path)) else {
        return call(template);
    };
    if !place.0 {
        return call(template);
    }
    let made = copies::made(protection, HERE, &place.1).and_then(|path| text(&path));
    let Ok(made) = made.map(CString::into_raw) else { return failed(libc::EACCES, -1) };
    let result = call(made);
    // SAFETY: it was made above, and is as long as before.
    let made = unsafe { CString::from_raw(made) };
    let (length, end) = (given.len(), made.as_bytes().len());
    let from = length.saturating_sub(6 + suffix.max(0) as usize);
    for at in from..length {
        // SAFETY: the caller's text is so long, and may be written.
        unsafe { template.add(at).write(made.as_bytes()[end - (length - at)] as c_char) };
    }
    result
}

macro_rules! uniques {
    ($($name:ident ($($more:ident: $type:ty),*) suffix $suffix:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(template: *mut c_char $(, $more: $type)*) -> c_int {
            unique(template, $suffix, |template| {
                real!($name as fn(*mut c_char $(, $type)*) -> c_int, -1; template $(, $more)*)
            })
        }
    )*};
}

uniques! {
    mkstemp() suffix 0;
    mkstemp64() suffix 0;
    mkostemp(flags: c_int) suffix 0;
    mkostemp64(flags: c_int) suffix 0;
    mkstemps(length: c_int) suffix length;
    mkstemps64(length: c_int) suffix length;
}

#[unsafe(no_mangle)]
extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    let made = unique(template, 0, |template| {
        let made = real!(mkdtemp as fn(*mut c_char) -> *mut c_char, std::ptr::null_mut(); template);
        if made.is_null() { -1 } else { 0 }
    });
    if made < 0 { std::ptr::null_mut() } else { template }
}
