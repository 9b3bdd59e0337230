//! Resolves a path: to the original, to a copy, or to nothing.

use std::ffi::c_int;

use super::protection::Protection;
use super::system::{HERE, Outcome, kind, lstat, names_of_open, read_link, working_folder};

/// Target of a link that stands for a removed file. No program would make such a path.
pub(super) const REMOVED: &[u8] = b"//vramlab-removed";

/// Most links that are followed, as in the system.
const MAX_LINKS: usize = 40;

/// The entry at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The file from before the run.
    Original,
    /// A copy.
    Copy,
    /// Nothing, because it was removed.
    Removed,
    /// Nothing, and never anything.
    Nothing,
}

/// A path without links, `.` and `..`, and the entry there.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: Vec<u8>,
    pub(super) found: Found,
}

impl Place {
    pub(super) fn exists(&self) -> bool {
        matches!(self.found, Found::Original | Found::Copy)
    }

    /// Returns the path of the file itself: the copy or the original.
    pub(super) fn actual(&self, protection: &Protection) -> Vec<u8> {
        if self.found == Found::Copy { protection.copy_of(&self.path) } else { self.path.clone() }
    }
}

/// Returns a path from the root on. Relative paths begin at a folder's descriptor.
pub(super) fn absolute(protection: &Protection, folder: c_int, path: &[u8]) -> Outcome<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return Ok(protection.meant(path).to_vec());
    }
    let base = if folder == HERE { working_folder()? } else { path_of(folder)? };
    Ok([protection.meant(&base), b"/", path].concat())
}

/// Returns the path of an open file or folder.
pub(super) fn path_of(descriptor: c_int) -> Outcome<Vec<u8>> {
    let mut path = read_link(format!("/proc/self/fd/{descriptor}").as_bytes()).map_err(|_| libc::EBADF)?;
    if path.first() != Some(&b'/') {
        return Err(libc::ENOTDIR);
    }
    // A name may end like that, too.
    if let Some(length) = path.strip_suffix(b" (deleted)").map(<[u8]>::len)
        && names_of_open(descriptor)? == 0
    {
        path.truncate(length);
    }
    Ok(path)
}

/// Follows a path. `last` says whether a link at its end is followed too.
pub(super) fn resolve(protection: &Protection, path: &[u8], last: bool) -> Outcome<Place> {
    let follow_last = last || path.ends_with(b"/");
    let mut rest = names(path);
    let mut place = Place { path: Vec::new(), found: Found::Original };
    // True if the folder reached so far has a copy.
    let mut copied = true;
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == b".." {
            let end = place.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            place.path.truncate(end);
            copied = true;
            continue;
        }
        let next = [place.path.as_slice(), b"/", name.as_slice()].concat();
        let (found, link) = look(protection, &next, copied)?;
        copied &= found == Found::Copy;
        // What an open pipe or socket is called in `/proc` is not a path: the system alone can follow it.
        let link = link.filter(|target| !is_open_entry(&next) || target.first() == Some(&b'/'));
        if let Some(target) = link.filter(|_| follow_last || !rest.is_empty()) {
            links += 1;
            if links > MAX_LINKS {
                return Err(libc::ELOOP);
            }
            if target.first() == Some(&b'/') {
                place.path.clear();
            }
            rest.extend(names(protection.meant(&target)));
            copied = true;
            continue;
        }
        if !matches!(found, Found::Original | Found::Copy) && !rest.is_empty() {
            return Err(libc::ENOENT);
        }
        place = Place { path: next, found };
    }
    if place.path.is_empty() {
        place.path.push(b'/');
    }
    Ok(place)
}

/// True for `/proc/NUMBER/fd/NUMBER`.
fn is_open_entry(path: &[u8]) -> bool {
    let mut names = path.strip_prefix(b"/proc/").unwrap_or_default().split(|byte| *byte == b'/');
    names.next().is_some() && names.any(|name| name == b"fd") && names.next().is_some()
}

/// Returns the names of a path, the last one first.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}

/// Returns the entry at a path whose folders are not links, and its target if it is a link.
fn look(protection: &Protection, path: &[u8], copied: bool) -> Outcome<(Found, Option<Vec<u8>>)> {
    let copy = protection.copy_of(path);
    let (found, actual, stat) = match copied.then(|| lstat(&copy)) {
        Some(Ok(stat)) => (Found::Copy, copy.as_slice(), stat),
        _ => match lstat(path) {
            Ok(stat) => (Found::Original, path, stat),
            Err(libc::ENOENT | libc::ENOTDIR) => return Ok((Found::Nothing, None)),
            Err(error) => return Err(error),
        },
    };
    if kind(&stat) != libc::S_IFLNK {
        return Ok((found, None));
    }
    let target = read_link(actual)?;
    if found == Found::Copy && target == REMOVED { Ok((Found::Removed, None)) } else { Ok((found, Some(target))) }
}
