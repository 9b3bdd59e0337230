//! Errors of the laboratory, sorted by whose fault they are: the exit code follows from that.

/// A result with the laboratory's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, and what it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, a file or a shape that the user gave cannot be used.
    #[error("{what}: {problem}")]
    Usage {
        /// The field of a run, the file and line, or the key.
        what: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// More memory is needed than exists. Found before any of it is allocated.
    #[error("out of memory: {message}")]
    TooLarge {
        /// What is too large, and how much memory exists.
        message: String,
        /// Bytes that the whole run lacks; `None` if that is not known.
        missing_bytes: Option<u64>,
    },
    /// A resource of the host cannot be used: a folder, or a file of this program's own.
    #[error("{what}: {problem}")]
    Host {
        /// The folder or file.
        what: String,
        /// The system's message.
        problem: String,
    },
    /// The core failed: a device, a shape, memory.
    #[error(transparent)]
    Core(#[from] memcore::Error),
    /// Stopped by the user. Everything measured until then was delivered.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Returns an [`Error::Usage`].
    pub fn usage(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Usage { what: what.into(), problem: problem.into() }
    }

    /// Whether the user asked for something impossible. Errors of shapes, types and options are the user's; all others are the device's.
    pub fn is_usage(&self) -> bool {
        use memcore::Error as Core;
        match self {
            Error::Usage { .. } => true,
            Error::Core(Core::Invalid { .. } | Core::Shape { .. } | Core::DType { .. }) => true,
            Error::Core(_) | Error::Interrupted | Error::TooLarge { .. } | Error::Host { .. } => false,
        }
    }

    /// Returns an [`Error::Host`].
    pub fn host(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Host { what: what.into(), problem: problem.into() }
    }
}
