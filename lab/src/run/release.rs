//! The release of transformers that a `config.json` is counted as, and why.

use std::path::Path;

use lab_base::error::Result;
use lab_base::python::{Origin, Python, Variable};
use lab_imports::huggingface::Release;

/// The release of transformers that counts where a run names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsualRelease {
    /// None is installed: the newest that is supported.
    #[default]
    Newest,
    /// Installed for the Python that would be used.
    Installed(Release, Origin),
    /// The one that counted when a lock file was written.
    Locked(Release),
}

impl UsualRelease {
    /// Returns the release that is installed for a Python: the one `named`, else the one that a terminal would start. No interpreter is started.
    ///
    /// # Errors
    /// [`lab_base::Error::Usage`] for a Python that is not there.
    pub fn installed(named: Option<&Path>, variable: Variable<'_>) -> Result<Self> {
        let python = Python::find(named, variable)?;
        let found = python.and_then(|python| {
            let release = python.version_of("transformers")?.parse().ok()?;
            Some(Self::Installed(release, python.origin))
        });
        Ok(found.unwrap_or_default())
    }

    /// Returns the release; `None` for the newest.
    pub fn release(self) -> Option<Release> {
        match self {
            Self::Newest => None,
            Self::Installed(release, _) | Self::Locked(release) => Some(release),
        }
    }

    /// Returns the release that another command would not find by itself.
    pub(super) fn given(self) -> Option<Release> {
        match self {
            Self::Installed(release, Origin::Named) | Self::Locked(release) => Some(release),
            Self::Installed(..) | Self::Newest => None,
        }
    }

    /// Says why it counts.
    pub(super) fn reason(self) -> String {
        match self {
            Self::Newest => "the newest known, none is installed".into(),
            Self::Installed(_, origin) => format!("installed for {origin}"),
            Self::Locked(_) => "the lock file".into(),
        }
    }
}
