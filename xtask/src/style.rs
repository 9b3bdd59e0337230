//! Rules of form: files stay short, and phrases for which `docs/glossary.md` has a word do not come back. Clippy checks that unsafe code has a comment on
//! its soundness.

use crate::Violation;
use crate::files::SourceFile;

/// Maximum number of lines of a file.
pub const MAX_LINES: usize = 600;

/// Checks that a file has at most [`MAX_LINES`] lines: a longer one does more than one thing.
pub fn too_long(file: &SourceFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| Violation::new(&file.path, lines, format!("{lines} lines; {MAX_LINES} are the limit")))
}

/// Phrases, each with the customary words.
const PHRASES: &[(&str, &str)] = &[
    ("let go", "freed, dropped"),
    ("lets go", "frees, drops"),
    ("letting go", "freeing, dropping"),
    ("lets it go", "frees it"),
    ("lets them go", "frees them"),
    ("into order", "contiguous"),
    ("memory enough", "enough memory"),
    ("of one's own", "your own, the user's own"),
    ("laid beside", "compared with"),
    ("otherwise than", "unlike, differently from"),
    ("in the place of", "instead of"),
    ("cannot be said", "is not known"),
    // Words of messages, which are read by people, and of the comments that become help.
    ("not represented", "vramlab does not support it"),
    ("is represented", "vramlab supports it"),
    ("are represented", "vramlab supports them"),
    ("be represented", "vramlab supports it"),
    ("refused by name", "an error with its name"),
    ("taken for granted", "vramlab assumes it"),
    ("what it takes is", "its memory is"),
];

/// Words that may follow "is no": with these, nothing is said to be of a kind.
const AFTER_NO: &[&str] =
    &["longer", "more", "less", "shorter", "such", "reason", "room", "use", "end", "conflict", "mention", "other"];

/// Finds phrases of `PHRASES` in a file, and sentences in which something "is no" thing.
pub fn phrases(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (phrase, instead) in PHRASES {
            if says(line, phrase) {
                found.push(Violation::new(&file.path, number + 1, format!("{phrase:?}: say {instead}")));
            }
        }
        if is_no(line) {
            found.push(Violation::new(&file.path, number + 1, "\"is no\": say \"is not a\""));
        }
    }
    found
}

/// True if the line contains the phrase, but not as the beginning of a longer word.
pub(crate) fn says(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    line.match_indices(phrase)
        .any(|(at, _)| !line[at + phrase.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn is_no(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let wrong = |at: usize| {
        let before = at.checked_sub(1).map_or("", |before| words[before]).to_lowercase();
        let after = words.get(at + 2).map_or("", |word| word.trim_matches(|c: char| !c.is_alphabetic()));
        matches!(words[at], "is" | "are" | "was" | "were")
            && words.get(at + 1) == Some(&"no")
            && !before.ends_with("here")
            && !after.is_empty()
            && !AFTER_NO.contains(&after)
    };
    (0..words.len()).any(wrong)
}
