//! Errors of the command line, and options that were typed.

use clap::ArgMatches;

use crate::exit::Failure;

/// Reason why the words do not make a command.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Clap's error; also help and version.
    Clap(clap::Error),
    /// Ours.
    Failure(Failure),
}

impl From<clap::Error> for Refusal {
    fn from(error: clap::Error) -> Self {
        Refusal::Clap(error)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failure(failure)
    }
}

/// Returns clap's message without its hints.
pub(super) fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}

/// True if an option was given in words, not by default.
pub(super) fn given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
}
