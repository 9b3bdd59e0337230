//! Files that the script would write. They go to copies, which are listed, and then discarded or kept.
//!
//! The library makes the copies (`rehearsal/src/files/`). Below the folder `copies`, each copy lies at the path of its original. A link
//! to [`REMOVED`] stands for a removed file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};

use super::folder::Folder;

/// Target of the links that stand for removed files.
const REMOVED: &str = "//vramlab-removed";

/// Folders that are not protected: the system's, and those for temporary files.
const OPEN: [&str; 6] = ["/tmp", "/var/tmp", "/dev", "/proc", "/sys", "/run"];

/// Caches in the user's home folder.
const CACHES: [&str; 4] = [".cache", ".triton", ".nv", ".keras"];

/// Variables that name caches and folders for temporary files.
const CACHE_VARIABLES: [&str; 16] = [
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR",
    "MPLCONFIGDIR",
];

/// Maximum number of names that are listed.
const MAX_NAMES: usize = 1000;
/// Maximum number of entries that are looked at.
const MAX_ENTRIES: u64 = 1_000_000;

/// Returns the environment variables that tell the library what to protect.
pub(super) fn environment(folder: &Folder) -> Vec<(&'static str, OsString)> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let temporary: Vec<PathBuf> = OPEN.iter().map(PathBuf::from).collect();
    let caches = home.iter().flat_map(|home| CACHES.map(|cache| home.join(cache)));
    let named = CACHE_VARIABLES.iter().filter_map(|name| std::env::var_os(name).map(PathBuf::from));
    let open: Vec<PathBuf> =
        temporary.into_iter().chain(caches).chain(named.filter(|path| path.is_absolute())).collect();
    // A working folder below a folder for temporary files is protected too: a project lies there.
    let closed = std::env::current_dir().ok().filter(|working| !open.contains(working));
    let open = open.iter().map(PathBuf::as_path).chain([folder.path()]);
    vec![
        ("VRAMLAB_REHEARSAL_FILES", folder.files().into()),
        ("VRAMLAB_REHEARSAL_FILES_OPEN", joined(open)),
        ("VRAMLAB_REHEARSAL_FILES_CLOSED", joined(closed.iter().map(PathBuf::as_path))),
    ]
}

/// Joins paths with colons, each as given and with its links resolved. Leaves out paths that contain a colon.
fn joined<'a>(paths: impl Iterator<Item = &'a Path>) -> OsString {
    let both = paths.flat_map(|path| [Some(path.to_path_buf()), path.canonicalize().ok()]).flatten();
    let mut all: Vec<OsString> =
        both.map(PathBuf::into_os_string).filter(|path| !path.as_bytes().contains(&b':')).collect();
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
}

/// Lists the withheld files. Moves the copies to `keep`, if given: those of the working folder to their relative path, others below
/// `elsewhere`.
pub(super) fn collect(folder: &Folder, keep: Option<&Path>) -> Result<Withheld> {
    let copies = folder.files().join("copies");
    let working = std::env::current_dir().unwrap_or_default();
    let mut found = Withheld::default();
    let mut folders = vec![copies.clone()];
    let mut looked_at = 0;
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            looked_at += 1;
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            if looked_at > MAX_ENTRIES {
                return Err(Error::host("what the script wrote", format!("more than {MAX_ENTRIES} files")));
            }
            let original = Path::new("/").join(path.strip_prefix(&copies).unwrap_or(&path));
            let is_removed = fs::read_link(&path).is_ok_and(|target| target == Path::new(REMOVED));
            let shown = original.strip_prefix(&working).unwrap_or(&original).display();
            found.count += 1;
            if found.names.len() < MAX_NAMES {
                found.names.push(format!("{shown}{}", if is_removed { " (removed)" } else { "" }));
            }
            if let Some(keep) = keep.filter(|_| !is_removed) {
                let target = kept_at(keep, &original, &working);
                let failed = |error: io::Error| Error::usage(target.display().to_string(), error.to_string());
                move_to(&path, &target).map_err(failed)?;
            }
        }
    }
    found.names.sort();
    Ok(found)
}

fn kept_at(keep: &Path, original: &Path, working: &Path) -> PathBuf {
    match original.strip_prefix(working) {
        Ok(rest) => keep.join(rest),
        Err(_) => keep.join("elsewhere").join(original.strip_prefix("/").unwrap_or(original)),
    }
}

/// Moves a file or a link. If a rename fails, as between file systems, copies it.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    match fs::read_link(from) {
        Ok(target) => std::os::unix::fs::symlink(target, to),
        Err(_) => fs::copy(from, to).map(drop),
    }
}
