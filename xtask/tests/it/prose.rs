//! Documents for users have short sentences, no semicolons, and public words.

use std::fs;

use xtask::files::{SourceFile, workspace_root};
use xtask::prose::{MAX_WORDS, long_sentences, private_words, semicolons, written_words};
use xtask::style::phrases;
use xtask::{Violation, listing};

/// Documents without a semicolon and without private words. The others have tables that the program prints.
const PLAIN: [&str; 15] = [
    "docs/articles.md",
    "docs/backend.md",
    "docs/devices.md",
    "docs/evidence-card.md",
    "docs/evidence-rehearse.md",
    "docs/glossary.md",
    "docs/guide.md",
    "docs/import.md",
    "docs/machines.md",
    "docs/mcp.md",
    "docs/python.md",
    "docs/rehearsal-library.md",
    "docs/rehearse.md",
    "docs/releases.md",
    "docs/walks.md",
];

/// The most sentences that may be too long, by document: a number may fall, and not rise.
const LONG: [(&str, usize); 17] = [
    ("README.md", 0),
    ("docs/articles.md", 0),
    ("docs/backend.md", 0),
    ("docs/devices.md", 0),
    ("docs/evidence-card.md", 0),
    ("docs/evidence-import.md", 0),
    ("docs/evidence-rehearse.md", 0),
    ("docs/glossary.md", 0),
    ("docs/guide.md", 0),
    ("docs/import.md", 3),
    ("docs/machines.md", 0),
    ("docs/mcp.md", 0),
    ("docs/python.md", 0),
    ("docs/rehearsal-library.md", 0),
    ("docs/rehearse.md", 0),
    ("docs/releases.md", 0),
    ("docs/walks.md", 0),
];

/// The most written words of the README and all documents but `json.md`, which a command writes: the number may fall, and not rise.
const WORDS: usize = 19_950;

fn document(name: &str) -> SourceFile {
    let text = fs::read_to_string(workspace_root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    SourceFile { path: name.into(), text }
}

fn written(text: &str) -> SourceFile {
    SourceFile { path: "x.md".into(), text: text.into() }
}

#[test]
fn documents_do_not_grow() {
    let folder = fs::read_dir(workspace_root().join("docs")).unwrap();
    let names = folder.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_string_lossy()));
    let written = names.filter(|name| name.ends_with(".md") && name != "docs/json.md").chain(["README.md".into()]);
    let words: usize = written.map(|name| written_words(&document(&name).text)).sum();
    assert!(words <= WORDS, "{words} words, {WORDS} are the limit");
}

#[test]
fn words_of_code_and_of_commands_are_not_written() {
    let text = "Two words.\n\n```sh\nnot these\n```\n\n<!-- table: x -->\n| nor these |\n<!-- /table -->\n\n<!-- nor this -->\n## A `x y z` heading\n";
    assert_eq!(written_words(text), 5);
}

#[test]
fn no_sentence_is_too_long() {
    for (name, most) in LONG {
        let found = long_sentences(&document(name));
        assert!(found.len() <= most, "{name}: {most} are known{}", listing(&found));
    }
}

#[test]
fn no_document_has_a_semicolon() {
    let found: Vec<Violation> = PLAIN.iter().flat_map(|name| semicolons(&document(name))).collect();
    assert!(found.is_empty(), "{}", listing(&found));
}

#[test]
fn private_words_do_not_come_back() {
    let words = |name: &&str| [private_words(&document(name)), phrases(&document(name))].concat();
    let found: Vec<Violation> = PLAIN.iter().flat_map(words).collect();
    assert!(found.is_empty(), "{}", listing(&found));
}

#[test]
fn a_long_sentence_is_found_wherever_it_stands() {
    let long = "word ".repeat(MAX_WORDS) + "more.";
    let places = [
        long.clone(),
        format!("Short.\n\n- {long}"),
        format!("| a | {long} |"),
        long.replace("word word", "word\nword"),
        format!("[{long}](other.md) Short."),
    ];
    for place in &places {
        assert_eq!(long_sentences(&written(place)).len(), 1, "{place}");
    }
    let enough = long.replacen("word ", "", 1);
    let places = [
        enough.clone(),
        format!("{enough} {enough}"),
        format!("{enough}\n\n{enough}"),
        format!("```text\n{long}\n```"),
    ];
    for place in &places {
        assert_eq!(long_sentences(&written(place)), [], "{place}");
    }
    let code = format!("`{long}` is one word.");
    assert_eq!(long_sentences(&written(&code)), []);
}

#[test]
fn semicolons_are_found_outside_of_code() {
    for wrong in ["One; two.", "| a | one; two |", "- One; two.", "## One; two"] {
        assert_eq!(semicolons(&written(wrong)).len(), 1, "{wrong}");
    }
    for right in ["`one; two`", "```sh\none; two\n```", "<!-- one; two -->", "[one](a;b)"] {
        assert_eq!(semicolons(&written(right)), [], "{right}");
    }
}

#[test]
fn private_words_are_found() {
    for wrong in ["It is not represented.", "That\nis refused by name.", "It counts as one."] {
        assert!(!private_words(&written(wrong)).is_empty(), "{wrong}");
    }
    for right in ["It is not supported.", "`represented`", "A representation."] {
        assert_eq!(private_words(&written(right)), [], "{right}");
    }
}
