//! Destination of a result, as typed.

use std::path::PathBuf;
use std::str::FromStr;

/// Destination of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// `-`
    Stdout,
    /// Anything else.
    File(PathBuf),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("expected a file, or - for standard output".into()),
            "-" => Ok(Destination::Stdout),
            path => Ok(Destination::File(path.into())),
        }
    }
}
