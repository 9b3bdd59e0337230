//! Formats the account of an out-of-memory error.

use memcore::memory::OutOfMemory;

use super::{View, wrapped};

/// Sentences of a short account: the request, the missing bytes, the holders.
const BRIEF: usize = 3;

/// Formats the report, a sentence to a paragraph, within the width of a terminal. The caller puts `error: ` before the first.
pub(crate) fn text(report: &OutOfMemory, view: View) -> String {
    let text = view.figures(&report.to_string());
    let mut sentences: Vec<&str> = text.trim_end_matches('.').split(". ").collect();
    if !view.full && sentences.len() > BRIEF {
        sentences.truncate(BRIEF);
        sentences.push("Who holds it, byte by byte: --full");
    }
    let paragraphs = sentences.iter().enumerate().map(|(i, sentence)| match i {
        // Leaves room for the caller's `error: `.
        0 => wrapped(sentence, view.width - "error: ".len(), 2),
        _ => format!("  {}", wrapped(sentence, view.width - 2, 2)),
    });
    paragraphs.collect::<Vec<_>>().join(".\n") + "."
}
