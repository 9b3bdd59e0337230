//! What can be wrong with data.

use std::path::PathBuf;

/// A result with a [`DataError`].
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Data that could not be read, or a request that it cannot meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The system did not let us read a file, for instance because it is not there.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file's contents are not what its format says.
    #[error("{}: at byte {offset}: expected {expected}, found {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where, in bytes from the start; for a compressed file, in its uncompressed contents.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A path that holds no data set that we know.
    #[error("{}: no known data set: expected {expected}", path.display())]
    UnknownFormat {
        /// The file or directory.
        path: PathBuf,
        /// What would be recognised.
        expected: &'static str,
    },
    /// A request that no data can meet.
    #[error("{what}: {problem}")]
    Invalid {
        /// What was asked for.
        what: &'static str,
        /// Why it cannot be.
        problem: String,
    },
}

impl DataError {
    /// A [`DataError::Invalid`].
    pub(crate) fn invalid(what: &'static str, problem: impl Into<String>) -> Self {
        DataError::Invalid { what, problem: problem.into() }
    }
}
