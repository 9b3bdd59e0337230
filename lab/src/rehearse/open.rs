//! Folders in which a script writes for real: caches, which the next run finds filled.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::held_folder::HeldFolder;

/// Folders for temporary files.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// The system's own folders, in which no file is a user's.
pub(super) const OF_THE_SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Variables that name folders for temporary files.
const TEMPORARY_VARIABLES: [&str; 2] = ["TMPDIR", "XDG_RUNTIME_DIR"];

/// Caches in the user's home folder.
const CACHES: [&str; 4] = [".cache", ".triton", ".nv", ".keras"];

/// Where `torch.compile` keeps what it compiled.
const INDUCTOR: &str = "TORCHINDUCTOR_CACHE_DIR";

/// Variables that name caches.
const CACHE_VARIABLES: [&str; 14] = [
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "TORCH_HOME",
    INDUCTOR,
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR",
    "MPLCONFIGDIR",
];

/// The caches of a run. Those that were made for it are removed again if they stay empty.
#[derive(Debug)]
pub(super) struct Caches {
    working: PathBuf,
    folders: Vec<PathBuf>,
    temporary: Vec<PathBuf>,
    held: Vec<HeldFolder>,
    inductor: Option<PathBuf>,
    since: SystemTime,
}

impl Caches {
    /// Finds the caches by the environment. None contains the working folder or the home folder, and none lies in the working folder:
    /// that one is protected whatever a variable says.
    pub(super) fn find() -> Self {
        let working = std::env::current_dir().unwrap_or_default();
        let working = working.canonicalize().unwrap_or(working);
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let named = |names: &[&str]| -> Vec<PathBuf> {
            let values = names.iter().filter_map(|name| std::env::var_os(name).map(PathBuf::from));
            values.filter(|path| path.is_absolute()).collect()
        };
        let inductor = std::env::var_os(INDUCTOR).is_none().then(inductor_folder);
        let mut found = Self {
            working,
            folders: Vec::new(),
            temporary: Vec::new(),
            held: Vec::new(),
            inductor,
            since: SystemTime::now(),
        };
        for path in named(&CACHE_VARIABLES).into_iter().chain(found.inductor.clone()) {
            if !found.is_closed(&path, home.as_deref()) {
                found.held.extend(HeldFolder::take(&path));
            }
            found.add(&path, home.as_deref());
        }
        for path in home.iter().flat_map(|home| CACHES.map(|cache| home.join(cache))) {
            found.add(&path, home.as_deref());
        }
        let temporary = TEMPORARY.iter().chain(&OF_THE_SYSTEM).map(PathBuf::from).chain(named(&TEMPORARY_VARIABLES));
        found.temporary = temporary.flat_map(|path| [path.canonicalize().ok(), Some(path)]).flatten().collect();
        found
    }

    fn add(&mut self, path: &Path, home: Option<&Path>) {
        let Ok(path) = path.canonicalize() else { return };
        if path.is_dir() && !self.is_closed(&path, home) && !self.folders.contains(&path) {
            self.folders.push(path);
        }
    }

    fn is_closed(&self, path: &Path, home: Option<&Path>) -> bool {
        let within = |folder: &Path| folder.starts_with(path);
        path.starts_with(&self.working) || within(&self.working) || home.is_some_and(within)
    }

    /// Returns the working folder, without links.
    pub(super) fn working(&self) -> &Path {
        &self.working
    }

    /// Returns the home folder and the folders for temporary files, without links.
    pub(super) fn around(&self) -> impl Iterator<Item = PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        home.into_iter().chain(self.temporary.iter().cloned()).filter_map(|folder| folder.canonicalize().ok())
    }

    /// Returns when the run began.
    pub(super) fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns the caches, without links.
    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Returns the folders for temporary files.
    pub(super) fn temporary(&self) -> &[PathBuf] {
        &self.temporary
    }

    /// True if what a script writes at this path is none of its outputs: caches, and temporary files outside of the working folder.
    pub(super) fn is_no_output(&self, path: &Path) -> bool {
        let open = self.folders.iter().chain(&self.temporary);
        let is_open = open.into_iter().any(|folder| path.starts_with(folder)) && !path.starts_with(&self.working);
        is_open || path.components().any(|part| part.as_os_str() == "__pycache__")
    }

    /// Returns the variables that tell a script where its caches are.
    pub(super) fn environment(&self) -> Option<(&'static str, OsString)> {
        self.inductor.as_ref().map(|folder| (INDUCTOR, folder.into()))
    }
}

/// Returns the folder that `torch.compile` takes if no variable names one.
fn inductor_folder() -> PathBuf {
    let names = ["LOGNAME", "USER", "LNAME", "USERNAME"];
    let user = names.iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let user: String = user.chars().map(|letter| if r#"\/:*?"<>|"#.contains(letter) { '_' } else { letter }).collect();
    std::env::temp_dir().join(OsStr::new(&format!("torchinductor_{user}")))
}
