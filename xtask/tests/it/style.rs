//! Files stay short, and certain phrases do not occur.

use std::path::Path;

use xtask::files::{SourceFile, all_rust_files, workspace_root};
use xtask::listing;
use xtask::style::{MAX_LINES, phrases, too_long};

#[test]
fn no_file_is_too_long() {
    let files = all_rust_files(&workspace_root()).unwrap();
    assert!(files.len() > 30, "only {} files were found", files.len());
    let violations: Vec<_> = files.iter().filter_map(too_long).collect();
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn a_line_too_many_is_found() {
    let of = |lines| too_long(&SourceFile { path: "x.rs".into(), text: "\n".repeat(lines) });
    assert_eq!(of(MAX_LINES), None);
    assert!(of(MAX_LINES + 1).is_some());
}

#[test]
fn phrases_that_the_field_has_a_word_for_do_not_come_back() {
    // The list and the tests quote the phrases.
    let quotes = |file: &SourceFile| file.path.ends_with("style.rs") || file.path.ends_with("prose.rs");
    let root = workspace_root();
    let mut files = all_rust_files(&root).unwrap();
    let rust = files.len();
    files.extend(["python/vramlab", "rehearsal/python"].iter().flat_map(|folder| python_files(&root.join(folder))));
    assert!(files.len() > rust + 30, "only {} files of Python were found", files.len() - rust);
    let violations: Vec<_> = files.iter().filter(|file| !quotes(file)).flat_map(phrases).collect();
    assert!(violations.is_empty(), "{}", listing(&violations));
}

/// The files of Python below a folder.
fn python_files(folder: &Path) -> Vec<SourceFile> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(python_files(&entry));
        } else if entry.extension().is_some_and(|ending| ending == "py") {
            let text = std::fs::read_to_string(&entry).unwrap();
            found.push(SourceFile { path: entry, text });
        }
    }
    found
}

#[test]
fn a_phrase_is_found_where_it_stands() {
    let of = |text: &str| phrases(&SourceFile { path: "x.rs".into(), text: text.into() }).len();
    for wrong in [
        "// It is no matrix.",
        "// which lets go of it",
        "// Let go.",
        "/// a gradient brought into order",
        "// with memory enough",
        "\"{x} is not represented\"",
        "/// Keys that are represented.",
        "/// It is refused by name.",
    ] {
        assert_eq!(of(wrong), 1, "{wrong}");
    }
    for right in
        ["// There is no matrix.", "// It is no longer there.", "// Where there are no values.", "// is not a matrix"]
    {
        assert_eq!(of(right), 0, "{right}");
    }
}
