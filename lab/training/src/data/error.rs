//! Errors of data sets.

use std::path::PathBuf;

/// A result with a [`DataError`].
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Data that could not be read, or a request that it cannot meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The system did not allow reading a file, for instance because the file does not exist.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's message.
        source: std::io::Error,
    },
    /// A file's contents are not what its format says.
    #[error("{}: at byte {offset}: expected {expected}, found {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Offset in bytes from the start; for a compressed file, in its uncompressed contents.
        offset: u64,
        /// What should be at the offset.
        expected: String,
        /// What the file has there.
        found: String,
    },
    /// A path without a data set of a known format.
    #[error("{}: not a known data set: expected {expected}", path.display())]
    UnknownFormat {
        /// The file or directory.
        path: PathBuf,
        /// The formats that are recognised.
        expected: &'static str,
    },
    /// A request that no data can meet.
    #[error("{what}: {problem}")]
    Invalid {
        /// The request.
        what: &'static str,
        /// Why it is impossible.
        problem: String,
    },
}

impl DataError {
    /// Returns a [`DataError::Invalid`].
    pub(crate) fn invalid(what: &'static str, problem: impl Into<String>) -> Self {
        DataError::Invalid { what, problem: problem.into() }
    }
}
