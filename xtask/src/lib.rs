//! Rules for the project's sources, as functions over their text; `tests/` applies them to the files. Also the tables
//! of figures in the documents, as functions over measurements.

pub mod bench;
pub mod circles;
pub mod contract;
pub mod files;
pub mod layers;
pub mod manifests;
pub mod paths;
pub mod prose;
pub mod published;
pub mod resolve;
pub mod schemas;
pub mod sources;
pub mod style;
pub mod typed;

use std::fmt;
use std::path::PathBuf;

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The file, relative to the workspace.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The problem, and what would be correct.
    pub problem: String,
}

impl Violation {
    pub(crate) fn new(file: impl Into<PathBuf>, line: usize, problem: impl Into<String>) -> Self {
        Violation { file: file.into(), line, problem: problem.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.problem)
    }
}

/// The violations, one per line, for a failing test.
pub fn listing(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n{violation}")).collect()
}
