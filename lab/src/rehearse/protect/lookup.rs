//! Finds what a path of another process means, by the rules by which the system will find it.
//!
//! Where both could differ, the path is not found here, and the caller gets that error: the system is not asked any more. So no path is too
//! long here but not there, and what stands in `/proc` for the process itself is never this one's.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2, readlinkat};

use super::system::{path_of, place};

/// Maximum number of links to nothing that are followed.
const MAX_LINKS: usize = 40;

/// What processes say of themselves.
const OF_PROCESSES: &str = "/proc";

/// Rules by which a link cannot lead where it would without them.
const BOUNDED: ResolveFlags = ResolveFlags::IN_ROOT
    .union(ResolveFlags::BENEATH)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// A path, and the place from which it is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    process: u32,
    /// A folder or a file as this process reaches it.
    base: PathBuf,
    /// The path from there on, which may be empty: then the base is meant.
    rest: OsString,
    rules: ResolveFlags,
}

/// An entry, or the place for a new one.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) found: Option<Metadata>,
}

impl Target {
    pub(super) fn exists(&self) -> bool {
        self.found.is_some()
    }
}

impl Named {
    /// What a process has open: a magic link in `/proc` leads there.
    pub(super) fn open(process: u32, base: PathBuf) -> Self {
        Self { process, base, rest: OsString::new(), rules: ResolveFlags::empty() }
    }

    /// A path of a process. `base` is where the system begins with a relative path.
    pub(super) fn new(process: u32, base: PathBuf, path: &[u8]) -> Self {
        if let Some(found) = through_a_process(process, path) {
            return found;
        }
        let (base, rest) = match path.strip_prefix(b"/") {
            Some(rest) => (format!("/proc/{process}/root").into(), trimmed_start(rest)),
            None => (base, path),
        };
        let rest = OsStr::from_bytes(if rest.is_empty() { b"." } else { rest }).into();
        Self { process, base, rest, rules: ResolveFlags::empty() }
    }

    fn below(process: u32, base: PathBuf, names: &[&[u8]]) -> Self {
        Self { process, base, rest: OsString::from_vec(names.join(&b'/')), rules: ResolveFlags::empty() }
    }

    /// The same path, followed by the rules of `openat2`.
    pub(super) fn by_rules(mut self, base: PathBuf, path: &[u8], rules: u64) -> Self {
        // Whether something is cached does not change where a path leads.
        let rules = ResolveFlags::from_bits_truncate(rules) - ResolveFlags::CACHED;
        if rules.contains(ResolveFlags::IN_ROOT) {
            self = Self { base, rest: OsStr::from_bytes(path).into(), ..self };
        }
        self.rules = rules;
        self
    }

    /// Opens what the path leads to, as a place alone.
    fn place(&self, follow: bool) -> io::Result<OwnedFd> {
        let base = place(&self.base, true)?;
        if self.rest.is_empty() { Ok(base) } else { self.from(&base, &self.rest, follow) }
    }

    fn from(&self, base: &OwnedFd, path: &OsStr, follow: bool) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        Ok(openat2(base, path, flags, Mode::empty(), self.rules | ResolveFlags::NO_MAGICLINKS)?)
    }

    /// Opens the folder around the entry, and returns it with the entry's name.
    fn around(&self) -> io::Result<(OwnedFd, OsString)> {
        let whole = self.rest.as_bytes();
        let end = whole.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let start = whole[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let name = &whole[start..end];
        if [&b""[..], b".", b".."].contains(&name) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let base = place(&self.base, true)?;
        let folder = match &whole[..start] {
            b"" => base,
            folder => self.from(&base, OsStr::from_bytes(folder), true)?,
        };
        Ok((folder, OsStr::from_bytes(name).into()))
    }

    /// Returns the entry by a path of this process that goes through the open folder around it, which must stay open as long.
    pub(super) fn entry(&self) -> io::Result<(OwnedFd, PathBuf)> {
        let (folder, name) = self.around()?;
        let path = path_of(folder.as_fd()).join(name);
        Ok((folder, path))
    }

    /// Returns what a change of this path changes.
    ///
    /// # Errors
    /// Those that the system has for the path, and others where it cannot be known.
    pub(super) fn target(&self, follow: bool) -> io::Result<Target> {
        let mut named = self.clone();
        for _ in 0..MAX_LINKS {
            let error = match named.place(follow) {
                Ok(open) => return found(&open),
                Err(error) => error,
            };
            // Where a link at the end leads to nothing, a file is made there; where it leads to what is open, that is the caller's.
            let is_end = [Some(libc::ENOENT), Some(libc::ELOOP)].contains(&error.raw_os_error());
            if !is_end || named.rest.is_empty() {
                return Err(error);
            }
            let (folder, name) = named.around()?;
            let around = fs::read_link(path_of(folder.as_fd()))?;
            // What stands there is this process's own, and nothing is made there.
            if around.starts_with(OF_PROCESSES) {
                return Err(error);
            }
            let link = if follow { readlinkat(&folder, &name, Vec::new()).ok() } else { None };
            match link {
                Some(_) if named.rules.intersects(BOUNDED) => return Err(error),
                Some(link) => named = Self { rules: named.rules, ..Self::new(named.process, around, link.as_bytes()) },
                None if error.raw_os_error() == Some(libc::ENOENT) => {
                    return Ok(Target { path: around.join(name), found: None });
                }
                None => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }
}

fn found(open: &OwnedFd) -> io::Result<Target> {
    let path = path_of(open.as_fd());
    let found = fs::metadata(&path).or_else(|_| fs::symlink_metadata(&path))?;
    Ok(Target { path: fs::read_link(&path)?, found: Some(found) })
}

fn trimmed_start(path: &[u8]) -> &[u8] {
    &path[path.iter().position(|byte| *byte != b'/').unwrap_or(path.len())..]
}

/// Returns the place that a path names through `/proc`: what a process has open, its working folder or its root. What a process calls
/// itself there is that process, and not this one.
fn through_a_process(process: u32, path: &[u8]) -> Option<Named> {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    if !path.starts_with(b"/") {
        return None;
    }
    let own = |part: &str| Some((process.to_string(), part.to_string()));
    let (of, part) = match names.next()? {
        b"proc" => {
            let of = match names.next()? {
                b"self" | b"thread-self" => process.to_string(),
                number => {
                    number.iter().all(u8::is_ascii_digit).then(|| String::from_utf8_lossy(number).into_owned())?
                }
            };
            let part = match names.next()? {
                b"fd" => format!("fd/{}", number(names.next()?)?),
                part @ (b"cwd" | b"root") => String::from_utf8_lossy(part).into_owned(),
                // A file of the process's own, as `/proc/self/comm`.
                part => {
                    let rest: Vec<&[u8]> = std::iter::once(part).chain(names).collect();
                    return Some(Named::below(process, format!("/proc/{of}").into(), &rest));
                }
            };
            Some((of, part))
        }
        b"dev" => match names.next()? {
            b"stdin" => own("fd/0"),
            b"stdout" => own("fd/1"),
            b"stderr" => own("fd/2"),
            b"fd" => own(&format!("fd/{}", number(names.next()?)?)),
            _ => None,
        },
        _ => None,
    }?;
    let rest: Vec<&[u8]> = names.collect();
    Some(Named::below(process, format!("/proc/{of}/{part}").into(), &rest))
}

fn number(name: &[u8]) -> Option<String> {
    (!name.is_empty() && name.iter().all(u8::is_ascii_digit)).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A path of this process, from a folder on.
    fn named(folder: &Path, path: &str) -> Named {
        Named::new(std::process::id(), folder.into(), path.as_bytes())
    }

    fn path(folder: &Path, path: &str, follow: bool) -> Result<PathBuf, i32> {
        let target = named(folder, path).target(follow);
        target.map(|target| target.path).map_err(|error| error.raw_os_error().unwrap_or(0))
    }

    #[test]
    fn a_path_leads_where_the_system_goes_or_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("folder/deep")).unwrap();
        fs::write(at("folder/file"), "").unwrap();
        for (to, link) in
            [("folder", "link"), ("folder/new", "nowhere"), ("loop", "loop"), ("/folder/file", "absolute")]
        {
            symlink(to, at(link)).unwrap();
        }
        assert_eq!(path(&root, "link/file", true), Ok(at("folder/file")));
        assert_eq!(path(&root, "link", false), Ok(at("link")));
        assert_eq!(path(&root, "link/", false), Ok(at("folder")));
        assert_eq!(path(&root, "nowhere", true), Ok(at("folder/new")), "a file is made where a link leads");
        assert_eq!(path(&root, "nowhere", false), Ok(at("nowhere")));
        assert_eq!(path(&root, "folder/new/", false), Ok(at("folder/new")));
        assert_eq!(path(&root, "folder/../link/deep/..", true), Ok(at("folder")));
        assert_eq!(path(&root, "loop", true), Err(libc::ELOOP));
        assert_eq!(path(&root, "none/new", true), Err(libc::ENOENT));
        assert_eq!(path(&root, "folder/file/new", true), Err(libc::ENOTDIR));
        let padded = format!("{}folder/file", "./".repeat(2042));
        assert_eq!(
            (padded.len(), path(&root, &padded, true)),
            (4095, Ok(at("folder/file"))),
            "as long as a path may be"
        );
        let whole =
            format!("{}{}", "/".repeat(4000 - at("folder/file").as_os_str().len()), at("folder/file").display());
        assert_eq!(path(&root, &whole, true), Ok(at("folder/file")));
        assert!(!named(&root, "folder/none").target(true).unwrap().exists());
    }

    #[test]
    fn what_stands_for_the_process_itself_is_the_callers() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::write(root.join("file"), "").unwrap();
        let open = fs::File::open(root.join("file")).unwrap();
        let number = open.as_raw_fd();
        let own = std::process::id();
        for name in
            [format!("/proc/self/fd/{number}"), format!("/proc//./{own}/fd/{number}"), format!("/dev/fd/{number}")]
        {
            assert_eq!(path(&root, &name, true), Ok(root.join("file")), "{name}");
        }
        // Of another process: number 1 would be that one's.
        let other = Named::new(1, "/".into(), b"/proc/self/fd/5");
        assert_eq!(other.base, Path::new("/proc/1/fd/5"));
        let inside = Named::new(7, "/".into(), b"/proc/thread-self/cwd/a/b");
        assert_eq!((inside.base.as_path(), inside.rest.as_os_str()), (Path::new("/proc/7/cwd"), OsStr::new("a/b")));
        assert_eq!(Named::new(7, "/".into(), b"/proc/self/oom_score_adj").base, Path::new("/proc/7"));
        symlink(format!("/proc/self/fd/{number}"), root.join("link")).unwrap();
        assert_eq!(path(&root, "link", true), Ok(root.join("file")));
        // Any other way there is not taken: it would lead to what this process has open.
        symlink("/proc/self/cwd", root.join("here")).unwrap();
        symlink(format!("/proc/../proc/self/fd/{number}"), root.join("around")).unwrap();
        for name in ["here/file", "around", &format!("/proc/../proc/self/fd/{number}")] {
            assert_eq!(path(&root, name, true), Err(libc::ELOOP), "{name}");
        }
        // Numbers that this process has only while it looks.
        for number in (0..100).filter(|number| fs::read_link(format!("/proc/self/fd/{number}")).is_err()) {
            let named = Named::new(1, root.clone(), format!("/proc/../proc/self/fd/{number}").as_bytes());
            assert!(named.target(true).is_err(), "{number}");
        }
    }

    #[test]
    fn the_rules_of_a_call_count() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/file"), "").unwrap();
        symlink("/file", root.join("folder/link")).unwrap();
        let target = |path: &str, rules: ResolveFlags| {
            let base = root.join("folder");
            let named = named(&base, path).by_rules(base, path.as_bytes(), rules.bits());
            named.target(true).map(|target| target.path).map_err(|error| error.raw_os_error().unwrap_or(0))
        };
        let file = Ok(root.join("folder/file"));
        for path in ["/file", "/../../file", "link", "file"] {
            assert_eq!(target(path, ResolveFlags::IN_ROOT), file, "{path}");
        }
        assert_eq!(target("/new", ResolveFlags::IN_ROOT), Ok(root.join("folder/new")));
        assert_eq!(target("file", ResolveFlags::CACHED), file);
        assert_eq!(target("../x", ResolveFlags::BENEATH), Err(libc::EXDEV));
        assert_eq!(target("link", ResolveFlags::NO_SYMLINKS), Err(libc::ELOOP));
    }
}
