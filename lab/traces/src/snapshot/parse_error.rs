//! Errors in a file, with the byte.

use lab_base::error::Error;

/// Reason why an input cannot be read.
#[derive(Debug)]
pub(super) struct ParseError {
    /// Offset of the byte at which it was found, from 0.
    offset: u64,
    problem: String,
}

/// Result whose error names the byte.
pub(super) type Result<T> = std::result::Result<T, ParseError>;

impl ParseError {
    #[cold]
    pub(crate) fn new(offset: u64, problem: impl Into<String>) -> Self {
        Self { offset, problem: problem.into() }
    }

    /// Says what is wrong, and at which byte.
    pub(super) fn in_words(&self) -> String {
        format!("byte {}: {}", self.offset, self.problem)
    }

    /// Turns it into the error of the file `name`.
    pub(super) fn error(self, name: &str) -> Error {
        Error::usage(name, self.in_words())
    }
}
