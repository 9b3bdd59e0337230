//! Changes of entries in folders: names, modes, times.

use std::ffi::{CString, c_char, c_int, c_void};

use super::copies::{self, Use};
use super::open::{failed, given};
use super::place::{Found, Place, absolute, path_of, resolve};
use super::protection::{Protection, protection};
use super::real::real;
use super::room::told;
use super::system::{HERE, Outcome, kind, lstat, text};

/// Runs a call that changes the target of a path, on the copy.
fn on_copy(
    folder: c_int,
    path: *const c_char,
    follow: bool,
    how: Use,
    call: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    let Some(protection) = protection() else { return told(path, call(folder, path)) };
    let copy = match given(path) {
        // Without a path, or with an empty one, the call means what is open.
        Err(_) | Ok(b"") => copies::changed_open(protection, folder),
        Ok(path) => copies::changed(protection, folder, path, follow, how).map(Some),
    };
    let copy = copy.and_then(|copy| copy.map(|copy| text(&copy)).transpose());
    let result = match copy {
        Ok(None) => call(folder, path),
        Ok(Some(copy)) => call(HERE, copy.as_ptr()),
        Err(error) => failed(error, -1),
    };
    told(path, result)
}

/// Runs a call that makes a new entry, among the copies.
fn as_new(folder: c_int, path: *const c_char, call: impl FnOnce(c_int, *const c_char) -> c_int) -> c_int {
    let Some(protection) = protection() else { return told(path, call(folder, path)) };
    let result = match given(path).and_then(|path| copies::made(protection, folder, path)).and_then(|path| text(&path))
    {
        Ok(copy) => call(HERE, copy.as_ptr()),
        Err(error) => failed(error, -1),
    };
    told(path, result)
}

fn place(protection: &Protection, folder: c_int, path: *const c_char) -> Outcome<Place> {
    let whole = absolute(protection, folder, given(path)?)?;
    // A name that ends in a slash means the folder itself, not the target of a link.
    resolve(protection, whole.strip_suffix(b"/").unwrap_or(&whole), false)
}

fn moved(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: u32) -> Option<c_int> {
    let protection = protection()?;
    let outcome = (|| {
        let (from, to) = (place(protection, from.0, from.1)?, place(protection, to.0, to.1)?);
        match flags {
            0 => {}
            libc::RENAME_NOREPLACE if to.exists() => return Err(libc::EEXIST),
            libc::RENAME_NOREPLACE => {}
            libc::RENAME_EXCHANGE => return copies::exchange(protection, &from, &to),
            // The caller then tries another way.
            _ => return Err(libc::EINVAL),
        }
        copies::move_to(protection, &from, &to)
    })();
    Some(outcome.map_or_else(|error| failed(error, -1), |()| 0))
}

#[unsafe(no_mangle)]
extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let result = moved((HERE, from), (HERE, to), 0)
        .unwrap_or_else(|| real!(rename as fn(*const c_char, *const c_char) -> c_int, -1; from, to));
    told(from, result)
}

#[unsafe(no_mangle)]
extern "C" fn renameat(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char) -> c_int {
    let result = moved((from_folder, from), (to_folder, to), 0).unwrap_or_else(|| {
        real!(renameat as fn(c_int, *const c_char, c_int, *const c_char) -> c_int, -1; from_folder, from, to_folder, to)
    });
    told(from, result)
}

#[unsafe(no_mangle)]
extern "C" fn renameat2(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: u32,
) -> c_int {
    let result = moved((from_folder, from), (to_folder, to), flags).unwrap_or_else(|| {
        real!(renameat2 as fn(c_int, *const c_char, c_int, *const c_char, u32) -> c_int, -1; from_folder, from, to_folder, to, flags)
    });
    told(from, result)
}

/// Removes a file (`Some(false)`), an empty folder (`Some(true)`) or either (`None`).
fn removed(folder: c_int, path: *const c_char, as_folder: Option<bool>) -> Option<c_int> {
    let protection = protection()?;
    let outcome = (|| {
        let place = place(protection, folder, path)?;
        if !place.exists() {
            return Err(libc::ENOENT);
        }
        let is_folder = kind(&lstat(&place.actual(protection))?) == libc::S_IFDIR;
        match as_folder {
            Some(false) if is_folder => return Err(libc::EISDIR),
            Some(true) if !is_folder => return Err(libc::ENOTDIR),
            _ => {}
        }
        if !protection.protects(&place.path) {
            return super::system::remove(&place.path, is_folder);
        }
        if is_folder && !copies::entries(protection, &place).is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        copies::take_away(protection, &place)
    })();
    Some(outcome.map_or_else(|error| failed(error, -1), |()| 0))
}

#[unsafe(no_mangle)]
extern "C" fn unlink(path: *const c_char) -> c_int {
    let call = || real!(unlink as fn(*const c_char) -> c_int, -1; path);
    told(path, removed(HERE, path, Some(false)).unwrap_or_else(call))
}

#[unsafe(no_mangle)]
extern "C" fn rmdir(path: *const c_char) -> c_int {
    let call = || real!(rmdir as fn(*const c_char) -> c_int, -1; path);
    told(path, removed(HERE, path, Some(true)).unwrap_or_else(call))
}

#[unsafe(no_mangle)]
extern "C" fn remove(path: *const c_char) -> c_int {
    let call = || real!(remove as fn(*const c_char) -> c_int, -1; path);
    told(path, removed(HERE, path, None).unwrap_or_else(call))
}

#[unsafe(no_mangle)]
extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    let call = || real!(unlinkat as fn(c_int, *const c_char, c_int) -> c_int, -1; folder, path, flags);
    told(path, removed(folder, path, Some(flags & libc::AT_REMOVEDIR != 0)).unwrap_or_else(call))
}

/// Makes a folder. It is empty even if an original folder of this name is not.
fn folder_made(folder: c_int, path: *const c_char, call: impl FnOnce(c_int, *const c_char) -> c_int) -> c_int {
    let result = as_new(folder, path, call);
    if let (0, Some(protection)) = (result, protection())
        && let Ok(Place { path, found: Found::Copy }) = place(protection, folder, path)
        && let Err(error) = copies::hide_originals(protection, &path)
    {
        return failed(error, -1);
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn mkdir(path: *const c_char, mode: libc::mode_t) -> c_int {
    folder_made(
        HERE,
        path,
        |folder, path| real!(mkdirat as fn(c_int, *const c_char, libc::mode_t) -> c_int, -1; folder, path, mode),
    )
}

#[unsafe(no_mangle)]
extern "C" fn mkdirat(folder: c_int, path: *const c_char, mode: libc::mode_t) -> c_int {
    folder_made(
        folder,
        path,
        |folder, path| real!(mkdirat as fn(c_int, *const c_char, libc::mode_t) -> c_int, -1; folder, path, mode),
    )
}

#[unsafe(no_mangle)]
extern "C" fn mkfifo(path: *const c_char, mode: libc::mode_t) -> c_int {
    as_new(
        HERE,
        path,
        |folder, path| real!(mkfifoat as fn(c_int, *const c_char, libc::mode_t) -> c_int, -1; folder, path, mode),
    )
}

#[unsafe(no_mangle)]
extern "C" fn mkfifoat(folder: c_int, path: *const c_char, mode: libc::mode_t) -> c_int {
    as_new(
        folder,
        path,
        |folder, path| real!(mkfifoat as fn(c_int, *const c_char, libc::mode_t) -> c_int, -1; folder, path, mode),
    )
}

#[unsafe(no_mangle)]
extern "C" fn mknod(path: *const c_char, mode: libc::mode_t, device: libc::dev_t) -> c_int {
    mknodat(HERE, path, mode, device)
}

#[unsafe(no_mangle)]
extern "C" fn mknodat(folder: c_int, path: *const c_char, mode: libc::mode_t, device: libc::dev_t) -> c_int {
    as_new(
        folder,
        path,
        |folder, path| real!(mknodat as fn(c_int, *const c_char, libc::mode_t, libc::dev_t) -> c_int, -1; folder, path, mode, device),
    )
}

#[unsafe(no_mangle)]
extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    symlinkat(target, HERE, path)
}

#[unsafe(no_mangle)]
extern "C" fn symlinkat(target: *const c_char, folder: c_int, path: *const c_char) -> c_int {
    as_new(
        folder,
        path,
        |folder, path| real!(symlinkat as fn(*const c_char, c_int, *const c_char) -> c_int, -1; target, folder, path),
    )
}

#[unsafe(no_mangle)]
extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    linkat(HERE, from, HERE, to, 0)
}

/// A second name for an original would be a way to write to it, so the copy gets the name.
#[unsafe(no_mangle)]
extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    let call = |from_folder, from, flags| {
        as_new(
            to_folder,
            to,
            |to_folder, to| real!(linkat as fn(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int, -1; from_folder, from, to_folder, to, flags),
        )
    };
    match linked_original(from_folder, from, follow, flags) {
        Ok(None) => call(from_folder, from, flags),
        Ok(Some(copy)) => call(HERE, copy.as_ptr(), 0),
        Err(error) => failed(error, -1),
    }
}

/// Returns the copy to which a link is made instead of an original; `None` if the caller means a file that may be linked: one without a
/// name yet, or a copy.
fn linked_original(folder: c_int, path: *const c_char, follow: bool, flags: c_int) -> Outcome<Option<CString>> {
    let Some(protection) = protection() else { return Ok(None) };
    let named = match given(path)? {
        b"" if flags & libc::AT_EMPTY_PATH != 0 => path_of(folder)?,
        b"" => return Ok(None),
        named => absolute(protection, folder, named)?,
    };
    // A descriptor's name in `/proc` is a link, and to that of a file without a name no path leads.
    let place = match resolve(protection, &named, follow) {
        Ok(place) if place.exists() => place,
        Ok(_) | Err(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !protection.protects(&place.path) {
        return Ok(None);
    }
    if place.found == Found::Original && compares_numbers() {
        return Err(libc::EXDEV);
    }
    text(&copies::changed(protection, HERE, &place.path, false, Use::Keep)?).map(Some)
}

/// True for a program that compares the number of a file with that of a second name for it, and ends if they differ. A copy has another
/// number than its original. Told that a link is not possible, it copies.
fn compares_numbers() -> bool {
    unsafe extern "C" {
        static program_invocation_short_name: *const c_char;
    }
    // SAFETY: the C library sets it when a program starts, and its text ends with a zero.
    given(unsafe { program_invocation_short_name }) == Ok(b"git")
}

/// Defines functions on a path: name, whether a link is followed, the use, and further arguments.
macro_rules! on_paths {
    ($($name:ident ($($more:ident: $type:ty),*) $follow:literal $how:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $name(path: *const c_char $(, $more: $type)*) -> c_int {
            on_copy(HERE, path, $follow, Use::$how, |_, path| {
                real!($name as fn(*const c_char $(, $type)*) -> c_int, -1; path $(, $more)*)
            })
        }
    )*};
}

on_paths! {
    truncate(length: libc::off_t) true Change;
    truncate64(length: libc::off_t) true Change;
    chmod(mode: libc::mode_t) true Keep;
    lchmod(mode: libc::mode_t) false Keep;
    chown(user: libc::uid_t, group: libc::gid_t) true Keep;
    lchown(user: libc::uid_t, group: libc::gid_t) false Keep;
    utime(times: *const c_void) true Keep;
    utimes(times: *const c_void) true Keep;
    lutimes(times: *const c_void) false Keep;
    setxattr(name: *const c_char, value: *const c_void, size: usize, flags: c_int) true Change;
    lsetxattr(name: *const c_char, value: *const c_void, size: usize, flags: c_int) false Change;
    removexattr(name: *const c_char) true Change;
    lremovexattr(name: *const c_char) false Change;
}

#[unsafe(no_mangle)]
extern "C" fn fchmodat(folder: c_int, path: *const c_char, mode: libc::mode_t, flags: c_int) -> c_int {
    on_copy(
        folder,
        path,
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        Use::Keep,
        |folder, path| real!(fchmodat as fn(c_int, *const c_char, libc::mode_t, c_int) -> c_int, -1; folder, path, mode, flags),
    )
}

#[unsafe(no_mangle)]
extern "C" fn fchownat(
    folder: c_int,
    path: *const c_char,
    user: libc::uid_t,
    group: libc::gid_t,
    flags: c_int,
) -> c_int {
    on_copy(
        folder,
        path,
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        Use::Keep,
        |folder, path| real!(fchownat as fn(c_int, *const c_char, libc::uid_t, libc::gid_t, c_int) -> c_int, -1; folder, path, user, group, flags),
    )
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn utimensat(folder: c_int, path: *const c_char, times: *const c_void, flags: c_int) -> c_int {
    on_copy(
        folder,
        path,
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        Use::Keep,
        |folder, path| real!(utimensat as fn(c_int, *const c_char, *const c_void, c_int) -> c_int, -1; folder, path, times, flags),
    )
}

#[unsafe(no_mangle)]
extern "C" fn futimesat(folder: c_int, path: *const c_char, times: *const c_void) -> c_int {
    on_copy(
        folder,
        path,
        true,
        Use::Keep,
        |folder, path| real!(futimesat as fn(c_int, *const c_char, *const c_void) -> c_int, -1; folder, path, times),
    )
}
