//! What is wrong with a file, and where.

use crate::error::Error;

/// A fault of the input.
#[derive(Debug)]
pub(super) struct Fault {
    /// The byte at which it was found, from 0.
    offset: u64,
    problem: String,
}

/// A result whose failure knows the byte.
pub(super) type Sound<T> = Result<T, Fault>;

impl Fault {
    /// A fault at a byte.
    #[cold]
    pub(super) fn new(offset: u64, problem: impl Into<String>) -> Self {
        Self { offset, problem: problem.into() }
    }

    /// As the error of a file.
    pub(super) fn error(self, name: &str) -> Error {
        Error::usage(name, format!("byte {}: {}", self.offset, self.problem))
    }
}
