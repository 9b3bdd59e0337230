//! Copies, marks for removed entries, and folders that show both together with the originals.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use super::contents;
use super::place::{Found, Place, REMOVED, absolute, path_of, resolve};
use super::protection::{Protection, is_within};
use super::system::{self, Outcome, access, kind, lstat, make_folder, make_link, remove, rename};

/// The change that a call is about to make to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The file must exist, and keeps its contents: another mode, time or name, for which it need not be writable.
    Keep,
    /// The file must exist, and its contents change.
    Change,
    /// The file must exist, and is emptied.
    Empty,
    /// The file is made if it does not exist.
    Make,
}

/// Returns the path for a call that changes the target of a path: the path of the copy, which is made if necessary, or
/// the path itself if it is not protected.
pub(super) fn changed(protection: &Protection, folder: c_int, path: &[u8], follow: bool, how: Use) -> Outcome<Vec<u8>> {
    let place = resolve(protection, &absolute(protection, folder, path)?, follow)?;
    if !protection.protects(&place.path) {
        return Ok(place.path);
    }
    protection.note_change();
    match place.found {
        Found::Copy => {}
        Found::Original => {
            if how != Use::Keep && kind(&lstat(&place.path)?) == libc::S_IFREG {
                access(&place.path, libc::W_OK)?;
            }
            own(protection, &place.path, how != Use::Empty)?;
        }
        Found::Removed | Found::Nothing if how == Use::Make => make_room(protection, &place)?,
        Found::Removed | Found::Nothing => return Err(libc::ENOENT),
    }
    Ok(protection.copy_of(&place.path))
}

/// Returns the path of the copy of an open original, or of the working folder, which is made if necessary; `None` for anything else.
pub(super) fn changed_open(protection: &Protection, descriptor: c_int) -> Outcome<Option<Vec<u8>>> {
    let path = if descriptor == system::HERE { system::working_folder() } else { path_of(descriptor) };
    match path.ok().filter(|path| protection.protects(path)) {
        Some(path) => changed(protection, system::HERE, &path, false, Use::Keep).map(Some),
        None => Ok(None),
    }
}

/// Returns the path for a new entry. Nothing may exist there.
pub(super) fn made(protection: &Protection, folder: c_int, path: &[u8]) -> Outcome<Vec<u8>> {
    let path = absolute(protection, folder, path)?;
    let path = path.strip_suffix(b"/").unwrap_or(&path);
    let place = resolve(protection, path, false)?;
    if !protection.protects(&place.path) {
        return Ok(place.path);
    }
    if place.exists() {
        return Err(libc::EEXIST);
    }
    protection.note_change();
    make_room(protection, &place)?;
    Ok(protection.copy_of(&place.path))
}

/// Makes a copy of an original, with the folders around it.
pub(super) fn own(protection: &Protection, path: &[u8], contents: bool) -> Outcome {
    let (stat, copy) = (lstat(path)?, protection.copy_of(path));
    match kind(&stat) {
        libc::S_IFDIR => own_folder(protection, path),
        libc::S_IFLNK => {
            own_folder(protection, parent(path))?;
            make_link(&system::read_link(path)?, &copy)
        }
        libc::S_IFREG => {
            own_folder(protection, parent(path))?;
            contents::copy(protection, path, &copy, contents, &stat)
        }
        // A device is not one of the script's files.
        _ => Err(libc::EPERM),
    }
}

/// Makes sure that an existing folder has a copy, and all folders around it too.
fn own_folder(protection: &Protection, path: &[u8]) -> Outcome {
    let copy = protection.copy_of(path);
    if path.is_empty() || path == b"/" || lstat(&copy).is_ok() {
        return Ok(());
    }
    own_folder(protection, parent(path))?;
    let mode = lstat(path).map_or(0o755, |stat| stat.st_mode & 0o7777);
    match make_folder(&copy, mode | 0o700) {
        Err(libc::EEXIST) => Ok(()),
        made => made,
    }
}

/// Prepares a new entry: checks that the folder around it is writable, makes a copy of the folder, and removes a mark
/// that is in the way.
fn make_room(protection: &Protection, place: &Place) -> Outcome {
    let folder = parent(&place.path);
    may_change(protection, folder)?;
    own_folder(protection, folder)?;
    match place.found {
        Found::Removed => remove(&protection.copy_of(&place.path), false),
        _ => Ok(()),
    }
}

/// Checks whether the system would let entries of a folder change.
fn may_change(protection: &Protection, folder: &[u8]) -> Outcome {
    let folder = if folder.is_empty() { b"/" } else { folder };
    let copy = protection.copy_of(folder);
    // The mode of an original counts as long as nothing replaced the original.
    let actual = if lstat(folder).is_ok() { folder } else { &copy };
    access(actual, libc::W_OK | libc::X_OK)
}

pub(super) fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// Removes an entry: deletes the copy, and leaves a mark if there is an original.
pub(super) fn take_away(protection: &Protection, place: &Place) -> Outcome {
    let copy = protection.copy_of(&place.path);
    may_change(protection, parent(&place.path))?;
    protection.note_change();
    own_folder(protection, parent(&place.path))?;
    match (place.found, lstat(&copy).map(|stat| kind(&stat))) {
        (Found::Copy, Ok(libc::S_IFDIR)) => system::remove_all(&copy),
        (Found::Copy, _) => remove(&copy, false)?,
        _ => {}
    }
    if lstat(&place.path).is_ok() { make_link(REMOVED, &copy) } else { Ok(()) }
}

/// Names in a folder, those of originals and copies together.
pub(super) fn entries(protection: &Protection, place: &Place) -> Vec<Vec<u8>> {
    let copy = protection.copy_of(&place.path);
    let is_shown = |name: &Vec<u8>| {
        let path = [place.path.as_slice(), b"/", name].concat();
        let is_mark = system::read_link(&protection.copy_of(&path)).is_ok_and(|target| target == REMOVED);
        !is_mark
    };
    let mut names = system::names(&copy);
    names.extend(system::names(&place.path));
    names.sort();
    names.dedup();
    names.retain(is_shown);
    names
}

/// True if a folder shows originals and copies together.
pub(super) fn is_mixed(protection: &Protection, place: &Place) -> bool {
    let is_folder = |path: &[u8]| lstat(path).is_ok_and(|stat| kind(&stat) == libc::S_IFDIR);
    place.found == Found::Copy && is_folder(&protection.copy_of(&place.path)) && is_folder(&place.path)
}

/// Makes a folder with entries of the same names and kinds, for reading them.
pub(super) fn listing(protection: &Protection, place: &Place) -> Outcome<Vec<u8>> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = format!("/{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let root = [protection.listings.as_slice(), number.as_bytes()].concat();
    let mut path = root;
    for name in std::iter::once(&b""[..]).chain(place.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()))
    {
        if !name.is_empty() {
            path = [path.as_slice(), b"/", name].concat();
        }
        make_folder(&path, 0o700)?;
    }
    for name in entries(protection, place) {
        let shown = [path.as_slice(), b"/", &name].concat();
        let original = [place.path.as_slice(), b"/", &name].concat();
        let copy = protection.copy_of(&original);
        let stat = lstat(&copy).or_else(|_| lstat(&original));
        match stat.map_or(libc::S_IFREG, |stat| kind(&stat)) {
            libc::S_IFDIR => make_folder(&shown, 0o700)?,
            libc::S_IFLNK => make_link(b"-", &shown)?,
            _ => make_link_to_file(&shown)?,
        }
    }
    Ok(path)
}

/// Makes an empty file in a listing, where only the kind of an entry matters.
fn make_link_to_file(path: &[u8]) -> Outcome {
    let path = system::text(path)?;
    // SAFETY: the path ends with a zero.
    let made = unsafe { libc::syscall(libc::SYS_mknodat, system::HERE, path.as_ptr(), libc::S_IFREG | 0o600, 0) };
    if made < 0 { Err(super::real::errno()) } else { Ok(()) }
}

/// Renames an entry. If it is not protected, the original is moved.
pub(super) fn move_to(protection: &Protection, from: &Place, to: &Place) -> Outcome {
    let [from_protected, to_protected] = [from, to].map(|place| protection.protects(&place.path));
    if !from.exists() {
        return Err(libc::ENOENT);
    }
    if !from_protected && !to_protected {
        return rename(&from.path, &to.path);
    }
    if from.path == to.path {
        return Ok(());
    }
    if is_within(&to.path, &from.path) {
        return Err(libc::EINVAL);
    }
    fits_over(protection, from, to)?;
    protection.note_change();
    if from_protected {
        own_all(protection, from)?;
    }
    let target = if to_protected {
        let place = Place { path: to.path.clone(), found: to.found };
        if place.exists() {
            take_away(protection, &place)?;
        }
        let found = resolve(protection, &to.path, false)?.found;
        make_room(protection, &Place { path: to.path.clone(), found })?;
        protection.copy_of(&to.path)
    } else {
        to.path.clone()
    };
    let source = if from_protected { protection.copy_of(&from.path) } else { from.path.clone() };
    rename_or_copy(protection, &source, &target)?;
    remove_marks(&target)?;
    if to_protected {
        hide_all_originals(protection, &to.path)?;
    }
    if from_protected && lstat(&from.path).is_ok() {
        make_link(REMOVED, &protection.copy_of(&from.path))?;
    }
    Ok(())
}

/// Exchanges two entries. Copies of both take the places of both.
pub(super) fn exchange(protection: &Protection, from: &Place, to: &Place) -> Outcome {
    if !from.exists() || !to.exists() {
        return Err(libc::ENOENT);
    }
    if from.path == to.path {
        return Ok(());
    }
    if is_within(&to.path, &from.path) || is_within(&from.path, &to.path) {
        return Err(libc::EINVAL);
    }
    let protected = [from, to].map(|place| (place, protection.protects(&place.path)));
    for (place, _) in protected.iter().filter(|(_, is_protected)| *is_protected) {
        may_change(protection, parent(&place.path))?;
        protection.note_change();
        own_all(protection, place)?;
    }
    let [from, to] = protected.map(
        |(place, is_protected)| {
            if is_protected { protection.copy_of(&place.path) } else { place.path.clone() }
        },
    );
    system::exchange(&from, &to)?;
    remove_marks(&from)?;
    remove_marks(&to)?;
    for (place, _) in protected.iter().filter(|(_, is_protected)| *is_protected) {
        hide_all_originals(protection, &place.path)?;
    }
    Ok(())
}

/// Makes the checks of the system before it replaces an entry.
fn fits_over(protection: &Protection, from: &Place, to: &Place) -> Outcome {
    if !to.exists() {
        return Ok(());
    }
    let is_folder = |place: &Place| lstat(&place.actual(protection)).is_ok_and(|stat| kind(&stat) == libc::S_IFDIR);
    match (is_folder(from), is_folder(to)) {
        (true, false) => Err(libc::ENOTDIR),
        (false, true) => Err(libc::EISDIR),
        (true, true) if !entries(protection, to).is_empty() => Err(libc::ENOTEMPTY),
        _ => Ok(()),
    }
}

/// Makes copies of everything below a place.
fn own_all(protection: &Protection, place: &Place) -> Outcome {
    if place.found == Found::Original {
        own(protection, &place.path, true)?;
    }
    if lstat(&place.path).is_ok_and(|stat| kind(&stat) == libc::S_IFDIR) {
        for name in entries(protection, place) {
            let below = [place.path.as_slice(), b"/", &name].concat();
            own_all(protection, &resolve(protection, &below, false)?)?;
        }
    }
    Ok(())
}

/// Marks the entries of an original folder that its copy does not have, if the copy is another folder of the same name.
pub(super) fn hide_originals(protection: &Protection, path: &[u8]) -> Outcome {
    if lstat(&protection.copy_of(path)).is_ok_and(|stat| kind(&stat) == libc::S_IFDIR) {
        for name in system::names(path) {
            let copy = protection.copy_of(&[path, b"/", &name].concat());
            if lstat(&copy).is_err() {
                make_link(REMOVED, &copy)?;
            }
        }
    }
    Ok(())
}

/// Removes the marks below a folder that has moved: the originals that they hid are elsewhere.
fn remove_marks(folder: &[u8]) -> Outcome {
    if lstat(folder).is_ok_and(|stat| kind(&stat) == libc::S_IFDIR) {
        for name in system::names(folder) {
            let below = [folder, b"/", &name].concat();
            if system::read_link(&below).is_ok_and(|target| target == REMOVED) {
                remove(&below, false)?;
            }
            remove_marks(&below)?;
        }
    }
    Ok(())
}

/// Marks the same below each folder of a copy that came from elsewhere.
fn hide_all_originals(protection: &Protection, path: &[u8]) -> Outcome {
    if !lstat(path).is_ok_and(|stat| kind(&stat) == libc::S_IFDIR) {
        return Ok(());
    }
    hide_originals(protection, path)?;
    for name in system::names(&protection.copy_of(path)) {
        hide_all_originals(protection, &[path, b"/", &name].concat())?;
    }
    Ok(())
}

/// Renames, or copies and removes if the file comes from another file system: from `/tmp` to the copies, which may lie
/// on another one than the original.
fn rename_or_copy(protection: &Protection, from: &[u8], to: &[u8]) -> Outcome {
    match rename(from, to) {
        Err(libc::EXDEV) => {
            let stat = lstat(from)?;
            if kind(&stat) != libc::S_IFREG {
                return Err(libc::EXDEV);
            }
            // An existing file there is replaced.
            let _nothing = remove(to, false);
            contents::copy(protection, from, to, true, &stat)?;
            remove(from, false)
        }
        done => done,
    }
}
