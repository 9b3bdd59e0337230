//! Two rules of form: files stay short, and whatever is unsafe says why it is sound.

use crate::Violation;
use crate::files::SourceFile;
use crate::scan::{scan, tokens};

/// The most lines that a file may have.
pub const MAX_LINES: usize = 600;

/// How many lines of code may stand between the reason and what it is for: an attribute, or a call that was
/// broken over lines.
const MAX_DISTANCE: usize = 3;

/// A file of more than [`MAX_LINES`] does more than one thing.
pub fn too_long(file: &SourceFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| Violation::new(&file.path, lines, format!("{lines} lines; {MAX_LINES} are the limit")))
}

/// The unsafe blocks and implementations without a `SAFETY:` comment on their line or just above.
pub fn unsafe_without_reason(file: &SourceFile) -> Vec<Violation> {
    let scanned = scan(&file.text);
    let code: Vec<&str> = scanned.code.lines().collect();
    let comments: Vec<&str> = scanned.comments.lines().collect();
    let all = tokens(&scanned.code);
    let pairs = all.iter().zip(all.iter().skip(1));
    let needing = pairs.filter(|(word, next)| word.text == "unsafe" && matches!(next.text.as_str(), "{" | "impl"));
    let silent = needing.filter(|(word, _)| !has_reason(&code, &comments, word.line - 1));
    silent
        .map(|(word, next)| {
            let what = if next.text == "impl" { "implementation" } else { "block" };
            Violation::new(&file.path, word.line, format!("unsafe {what} without a `// SAFETY:` comment above"))
        })
        .collect()
}

/// Looks from a line (counted from 0) upwards; comments and blank lines are free.
fn has_reason(code: &[&str], comments: &[&str], line: usize) -> bool {
    let mut distance = 0;
    for at in (0..=line).rev() {
        if comments[at].contains("SAFETY:") {
            return true;
        }
        if at < line && !code[at].trim().is_empty() {
            distance += 1;
        }
        if distance > MAX_DISTANCE {
            return false;
        }
    }
    false
}
