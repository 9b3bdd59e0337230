//! The ways to protect files.

use std::path::PathBuf;
use std::time::SystemTime;

use lab_base::error::{Error, Result};

/// Variable that names the first way that is tried.
const VARIABLE: &str = "VRAMLAB_REHEARSAL_PROTECTION";

/// How files are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rehearse) enum Way {
    /// A mount namespace: every process of the run sees overlays, whatever it is.
    Namespace,
    /// The preloaded library makes copies, and a filter for system calls refuses what the library does not see.
    Filter,
    /// The preloaded library makes copies, and Landlock refuses what the library does not see, but for modes, owners, times and attributes.
    Landlock,
    /// The preloaded library alone: a process that does not load it writes for real.
    Library,
}

impl Way {
    /// All ways, in the order in which they are tried.
    const ALL: [Self; 4] = [Self::Namespace, Self::Filter, Self::Landlock, Self::Library];

    /// Returns the ways that are tried, in this order: all of them, or from the one on that [`VARIABLE`] names. `files_of_others` is true
    /// if files of other users or groups may be written: in a user namespace nobody can, so that the filter comes first.
    ///
    /// # Errors
    /// A variable with another value.
    pub(in crate::rehearse) fn tried(files_of_others: bool) -> Result<Vec<Self>> {
        let mut ways = Self::ALL.to_vec();
        match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            None if files_of_others => ways.swap(0, 1),
            None => {}
            Some(value) => {
                let first = ways.iter().position(|way| value == way.name());
                let first = first.ok_or_else(|| Error::usage(VARIABLE, "namespace, filter, landlock or library"))?;
                ways.drain(..first);
            }
        }
        Ok(ways)
    }

    /// Returns the name in an answer.
    pub(in crate::rehearse) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Filter => "filter",
            Self::Landlock => "landlock",
            Self::Library => "library",
        }
    }
}

/// What a run needs of its files.
#[derive(Clone, Debug)]
pub(in crate::rehearse) struct Wanted {
    /// The run's own folder, in which processes write for real.
    pub(in crate::rehearse) run: PathBuf,
    /// The folder for upper layers, in the run's folder.
    pub(in crate::rehearse) layers: PathBuf,
    /// The folder in which the commands are started. It must be writable for them if it is for this program.
    pub(in crate::rehearse) working: PathBuf,
    /// Folders in which the commands are expected to write, without links.
    pub(in crate::rehearse) reached: Vec<PathBuf>,
    /// Caches, in which processes write for real.
    pub(in crate::rehearse) caches: Vec<PathBuf>,
    /// Folders for temporary files. Without a namespace, what did not exist before the run may change there.
    pub(in crate::rehearse) temporary: Vec<PathBuf>,
    /// When the run began.
    pub(in crate::rehearse) since: SystemTime,
    /// True if connections beyond this machine are refused.
    pub(in crate::rehearse) offline: bool,
}
