//! The ways to protect files.

use std::path::PathBuf;

/// How files are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rehearse) enum Way {
    /// A mount namespace: every process of the run sees overlays, whatever it is.
    Namespace,
    /// The preloaded library alone: a process that does not load it writes for real.
    Library,
}

impl Way {
    /// All ways, in the order in which they are tried.
    pub(in crate::rehearse) const ALL: [Self; 2] = [Self::Namespace, Self::Library];

    /// Returns the name in an answer.
    pub(in crate::rehearse) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
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
    /// Caches, in which processes write for real.
    pub(in crate::rehearse) caches: Vec<PathBuf>,
    /// True if connections beyond this machine are refused.
    pub(in crate::rehearse) offline: bool,
}
