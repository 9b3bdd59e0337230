//! What can go wrong in the laboratory, sorted by whose fault it is: the exit code follows from that.

/// A result with the laboratory's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with what it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, a file or a shape that the user gave cannot be used.
    #[error("{what}: {problem}")]
    Usage {
        /// The flag, file and line, or key.
        what: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The core failed: a device, a shape, memory.
    #[error(transparent)]
    Core(#[from] memcore::Error),
    /// Stopped by the user; what was measured until then was delivered.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An [`Error::Usage`].
    pub fn usage(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Usage { what: what.into(), problem: problem.into() }
    }
}
