//! A rule of form: files stay short. That whatever is unsafe says why it is sound, clippy checks.

use crate::Violation;
use crate::files::SourceFile;

/// The most lines that a file may have.
pub const MAX_LINES: usize = 600;

/// A file of more than [`MAX_LINES`] does more than one thing.
pub fn too_long(file: &SourceFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| Violation::new(&file.path, lines, format!("{lines} lines; {MAX_LINES} are the limit")))
}
