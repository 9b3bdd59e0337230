//! Files that the script would write. They go to upper layers or to copies, which are listed, and then discarded or kept.
//!
//! In a namespace, an upper layer holds what was written below one folder; a device of number 0 stands for a removed file, and a folder
//! with a mark replaced another one (`protect/namespace.rs`). Otherwise the library makes copies (`rehearsal/src/files/`): below the
//! folder `copies`, each lies at the path of its original, and a link to [`REMOVED`] stands for a removed file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lab_base::error::{Error, Result};

use super::folder::Folder;
use super::open::{Caches, OF_THE_SYSTEM};
use super::plain::is_plain_folder;
use super::protect::{Layer, copy_file};

/// Target of the links that stand for removed files.
const REMOVED: &str = "//vramlab-removed";

/// Attributes that mark a folder of an upper layer that hides the one below it.
const HIDING: [&str; 2] = ["user.overlay.opaque", "trusted.overlay.opaque"];

/// Maximum number of names that are listed.
const MAX_NAMES: usize = 1000;
/// Maximum number of entries that are looked at.
const MAX_ENTRIES: u64 = 1_000_000;

/// Returns the environment variables that tell the library what to protect. In the temporary folders, what existed before the run stays.
pub(super) fn environment(folder: &Folder, caches: &Caches, temporary: &[PathBuf]) -> Vec<(&'static str, OsString)> {
    // A working folder below a folder for temporary files is protected too: a project lies there. So is one that such a variable names.
    let working = caches.working();
    let open = caches.folders().iter().chain(temporary).filter(|open| !open.starts_with(working));
    let system = OF_THE_SYSTEM.map(Path::new);
    let open = open.map(PathBuf::as_path).chain(system).chain([folder.path()]);
    let since = caches.since().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    vec![
        ("VRAMLAB_REHEARSAL_FILES", folder.files().into()),
        ("VRAMLAB_REHEARSAL_FILES_OPEN", joined(open)),
        ("VRAMLAB_REHEARSAL_FILES_CLOSED", joined([working].into_iter())),
        ("VRAMLAB_REHEARSAL_FILES_TEMPORARY", joined(temporary.iter().map(PathBuf::as_path))),
        ("VRAMLAB_REHEARSAL_FILES_SINCE", format!("{}.{}", since.as_secs(), since.subsec_nanos()).into()),
    ]
}

/// Joins paths with colons, each as given and with its links resolved. A backslash stands before a colon of a name, and before a backslash.
fn joined<'a>(paths: impl Iterator<Item = &'a Path>) -> OsString {
    let both = paths.flat_map(|path| [Some(path.to_path_buf()), path.canonicalize().ok()]).flatten();
    let escaped = |path: PathBuf| {
        let bytes = path.as_os_str().as_bytes().iter();
        let escaped = bytes.flat_map(|byte| match byte {
            b':' | b'\\' => vec![b'\\', *byte],
            _ => vec![*byte],
        });
        OsString::from_vec(escaped.collect())
    };
    let mut all: Vec<OsString> = both.map(escaped).collect();
    all.dedup();
    all.join(OsStr::new(":"))
}

/// Files that the script would have written or removed.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// Names, relative to the working folder if they lie there. ` (removed)` follows the name of a file that the script would have removed.
    pub(super) names: Vec<String>,
    /// Number of files, also of those that are not listed.
    pub(super) count: u64,
    /// Paths of the listed files.
    pub(super) paths: Vec<PathBuf>,
    /// What could not be kept, and why.
    pub(super) problems: Vec<String>,
}

/// Lists the withheld files. Moves the copies to `keep`, if given: those of the working folder to their relative path, others below
/// `elsewhere`.
///
/// # Errors
/// More files than can be listed.
pub(super) fn collect(folder: &Folder, layers: &[Layer], caches: &Caches, keep: Option<&Path>) -> Result<Withheld> {
    let copies = Layer { tree: "/".into(), upper: folder.files().join("copies") };
    let mut collector = Collector { caches, keep, found: Withheld::default(), looked_at: 0 };
    let is_whole =
        |layer: &&Layer| !layer.upper.starts_with(folder.path()) || is_plain_folder(folder.path(), &layer.upper);
    for layer in layers.iter().chain([&copies]).filter(is_whole) {
        collector.layer(layer)?;
    }
    let mut found = collector.found;
    found.names.sort();
    Ok(found)
}

struct Collector<'a> {
    caches: &'a Caches,
    keep: Option<&'a Path>,
    found: Withheld,
    looked_at: u64,
}

impl Collector<'_> {
    fn layer(&mut self, layer: &Layer) -> Result<()> {
        let mut folders = vec![layer.upper.clone()];
        while let Some(next) = folders.pop() {
            let original = original(layer, &next);
            if self.caches.is_no_output(&original) && !self.caches.working().starts_with(&original) {
                continue;
            }
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                self.looked_at += 1;
                if self.looked_at > MAX_ENTRIES {
                    return Err(Error::host("what the script wrote", format!("more than {MAX_ENTRIES} files")));
                }
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                let original = original.join(entry.file_name());
                if kind.is_dir() {
                    make_readable(&path);
                    self.hidden_by(&path, &original);
                    folders.push(path);
                } else if !self.caches.is_no_output(&original) {
                    self.file(&path, &original);
                }
            }
        }
        Ok(())
    }

    /// Lists what a new folder in place of an old one hides.
    fn hidden_by(&mut self, folder: &Path, original: &Path) {
        let is_marked = |name: &&str| rustix::fs::lgetxattr(folder, *name, &mut [0u8; 8]).is_ok();
        if !HIDING.iter().any(is_marked) || self.caches.is_no_output(original) {
            return;
        }
        for entry in fs::read_dir(original).into_iter().flatten().flatten() {
            if fs::symlink_metadata(folder.join(entry.file_name())).is_err() {
                self.name(&entry.path(), true);
            }
        }
    }

    fn file(&mut self, path: &Path, original: &Path) {
        let is_removed = stands_for_removed(path);
        self.name(original, is_removed);
        if let Some(keep) = self.keep.filter(|_| !is_removed) {
            let target = kept_at(keep, original, self.caches.working());
            if let Err(error) = move_to(path, keep, &target) {
                let problem = format!("{} was not kept at {}: {error}", original.display(), target.display());
                self.found.problems.push(problem);
            }
        }
    }

    fn name(&mut self, original: &Path, is_removed: bool) {
        let shown = original.strip_prefix(self.caches.working()).unwrap_or(original).display();
        self.found.count += 1;
        if self.found.names.len() < MAX_NAMES {
            self.found.names.push(format!("{shown}{}", if is_removed { " (removed)" } else { "" }));
            self.found.paths.push(original.into());
        }
    }
}

/// Lets this user read a folder of a layer, whatever mode the script gave it. Nobody sees the layer any more.
fn make_readable(folder: &Path) {
    if rustix::fs::access(folder, rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK).is_err() {
        // Without success, nothing below it is listed.
        let _not_ours = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    }
}

/// Returns the path that an entry of a layer has for the script.
fn original(layer: &Layer, path: &Path) -> PathBuf {
    match path.strip_prefix(&layer.upper) {
        Ok(rest) if !rest.as_os_str().is_empty() => layer.tree.join(rest),
        _ => layer.tree.clone(),
    }
}

fn stands_for_removed(path: &Path) -> bool {
    let is_device =
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == 0);
    is_device || fs::read_link(path).is_ok_and(|target| target == Path::new(REMOVED))
}

fn kept_at(keep: &Path, original: &Path, working: &Path) -> PathBuf {
    match original.strip_prefix(working) {
        Ok(rest) => keep.join(rest),
        Err(_) => keep.join("elsewhere").join(original.strip_prefix("/").unwrap_or(original)),
    }
}

/// Moves a file or a link. If a rename fails, as between file systems, copies it. Pipes and sockets are left.
fn move_to(from: &Path, keep: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        make_folders(keep, folder)?;
    }
    let kind = fs::symlink_metadata(from)?.file_type();
    if !kind.is_file() && !kind.is_symlink() {
        return Ok(());
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    match fs::read_link(from) {
        Ok(target) => std::os::unix::fs::symlink(target, to),
        Err(_) => copy_file(from, to),
    }
}

/// Makes the folders below `keep` in which a file is kept. Never goes through a link, which a script may have left there: it could lead
/// anywhere.
fn make_folders(keep: &Path, folder: &Path) -> io::Result<()> {
    let mut at = keep.to_path_buf();
    for part in folder.strip_prefix(keep).unwrap_or(Path::new("")) {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(io::Error::other(format!("{} is in the way", at.display()))),
            Err(_) => fs::create_dir(&at)?,
        }
    }
    Ok(())
}
