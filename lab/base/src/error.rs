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
        /// The field of a run, the file and line, or the key.
        what: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// More memory is needed than there is, before anything of it is made.
    #[error("out of memory: {message}")]
    TooLarge {
        /// What it is, and what there is.
        message: String,
        /// Bytes that the whole run needs beyond what there is, where that is known.
        missing_bytes: Option<u64>,
    },
    /// Something of the host cannot be used: a folder, a file that is ours.
    #[error("{what}: {problem}")]
    Host {
        /// What it is.
        what: String,
        /// What the system says.
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

    /// Whether the user asked for something that cannot be: shapes, types and options are the user's, the rest is the device's.
    pub fn is_usage(&self) -> bool {
        use memcore::Error as Core;
        match self {
            Error::Usage { .. } => true,
            Error::Core(Core::Invalid { .. } | Core::Shape { .. } | Core::DType { .. }) => true,
            Error::Core(_) | Error::Interrupted | Error::TooLarge { .. } | Error::Host { .. } => false,
        }
    }

    /// An [`Error::Host`].
    pub fn host(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Host { what: what.into(), problem: problem.into() }
    }
}
