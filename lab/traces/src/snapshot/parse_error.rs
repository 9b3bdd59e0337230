//! What is wrong with a file, and where.

use lab_base::error::Error;

/// Why an input cannot be read.
#[derive(Debug)]
pub(super) struct ParseError {
    /// The byte at which it was found, from 0.
    offset: u64,
    problem: String,
}

/// A result whose failure knows the byte.
pub(super) type Result<T> = std::result::Result<T, ParseError>;

impl ParseError {
    #[cold]
    pub(crate) fn new(offset: u64, problem: impl Into<String>) -> Self {
        Self { offset, problem: problem.into() }
    }

    /// As the error of a file.
    pub(super) fn error(self, name: &str) -> Error {
        Error::usage(name, format!("byte {}: {}", self.offset, self.problem))
    }
}
