//! Rules for the sentences of documents that users read: they are short, without semicolons, and in public words. Code is left out.

use crate::Violation;
use crate::files::SourceFile;
use crate::style::says;

/// Maximum number of words of a sentence. A span of code is one word.
pub const MAX_WORDS: usize = 35;

/// Words that only this project uses so, each with the customary ones.
const PRIVATE: &[(&str, &str)] = &[
    ("represented", "supported"),
    ("refused by name", "vramlab stops and names it"),
    ("is refused", "vramlab stops"),
    ("are refused", "vramlab stops"),
    ("taken for granted", "vramlab assumes"),
    ("counts as", "vramlab assumes"),
    ("count as", "vramlab assumes"),
    ("what was chosen", "the defaults"),
    ("what it takes", "the need"),
    ("what would make", "the fix"),
    ("what is said", "name it"),
    ("sheds", "frees"),
];

/// A paragraph, an item of a list, a heading or a cell of a table, without its markup.
struct Piece {
    /// Its first line, from 1.
    line: usize,
    text: String,
}

/// Returns the sentences of more than [`MAX_WORDS`] words.
pub fn long_sentences(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    for piece in pieces(&file.text) {
        for sentence in sentences(&piece.text) {
            let words = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            if words > MAX_WORDS {
                let problem = format!("a sentence of {words} words, {MAX_WORDS} are the limit: {sentence}");
                found.push(Violation::new(&file.path, piece.line, problem));
            }
        }
    }
    found
}

/// Returns the pieces with a semicolon: it joins what two sentences, or a list, would say.
pub fn semicolons(file: &SourceFile) -> Vec<Violation> {
    let with = pieces(&file.text).into_iter().filter(|piece| piece.text.contains(';'));
    with.map(|piece| Violation::new(&file.path, piece.line, format!("a semicolon: {}", piece.text))).collect()
}

/// Returns the places of words that only this project uses so.
pub fn private_words(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    for piece in pieces(&file.text) {
        for (phrase, instead) in PRIVATE.iter().filter(|(phrase, _)| says(&piece.text, phrase)) {
            found.push(Violation::new(&file.path, piece.line, format!("{phrase:?}: say {instead}: {}", piece.text)));
        }
    }
    found
}

/// Number of written words: outside of blocks of code, of comments, and of what a command writes between `<!-- name -->` and `<!-- /name -->`.
pub fn written_words(text: &str) -> usize {
    let mut without = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!-- ") {
        let Some((mark, after)) = after.split_once(" -->") else { break };
        without.push_str(before);
        let end = format!("<!-- /{} -->", mark.split([':', ' ']).next().unwrap_or_default());
        rest = after.split_once(&end).map_or(after, |(_, after)| after);
    }
    without.push_str(rest);
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    pieces(&without).iter().map(|piece| piece.text.split_whitespace().filter(is_word).count()).sum()
}

/// Returns the pieces of a document outside of blocks of code and comments.
fn pieces(text: &str) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    let (mut in_code, mut continues) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            in_code = !in_code;
            continues = false;
            continue;
        }
        if in_code || line.is_empty() || line.starts_with("<!--") {
            continues = false;
            continue;
        }
        let plain = without_markup(line);
        if let Some(row) = plain.strip_prefix('|') {
            // An escaped bar is part of a cell.
            let row = row.replace("\\|", "/");
            out.extend(row.split('|').map(|cell| Piece { line: index + 1, text: cell.trim().to_string() }));
            continues = false;
        } else if continues && !begins(line) {
            let last = out.last_mut().expect("a piece that continues");
            last.text.push(' ');
            last.text.push_str(&plain);
        } else {
            out.push(Piece { line: index + 1, text: plain });
            continues = !line.starts_with('#');
        }
    }
    out
}

/// True if the line begins an item of a list or a heading.
fn begins(line: &str) -> bool {
    let numbered = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.starts_with("- ") || line.starts_with("* ") || line.starts_with('#') || numbered
}

/// Replaces spans of code by the word `code`, and links by their text.
fn without_markup(line: &str) -> String {
    let without_code: String =
        line.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "code" }).collect();
    let mut out = String::new();
    let mut rest = without_code.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        out.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.replace(['[', ']'], "")
}

/// Splits a piece after full stops, question marks and exclamation marks that white space follows.
fn sentences(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    for word in text.split_whitespace() {
        let last = out.last_mut().expect("one at least");
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
        if word.trim_end_matches(['"', '”', ')', '*']).ends_with(['.', '!', '?']) {
            out.push(String::new());
        }
    }
    out
}
