//! `docs/accuracy.md` agrees with the measured figures, and with what the program said of them.

use std::collections::BTreeSet;
use std::fs;

use xtask::files::workspace_root;
use xtask::published::{CAUSES, DOCUMENT, answers, document, left_out, rows};

#[test]
fn no_row_leaves_its_interval_unnoticed() {
    let root = workspace_root();
    let made = document(&root).unwrap();
    let there = fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    assert!(there == made, "{DOCUMENT}: run `cargo xtask published`");
    assert!(!made.contains("said to fit"), "a training that ran out of memory is said to fit");
}

#[test]
fn every_row_has_a_name_of_its_own() {
    let rows = rows(&workspace_root()).unwrap();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(names.len(), rows.len());
    let answers = answers(&workspace_root()).unwrap();
    assert!(answers.keys().all(|name| names.contains(name.as_str())));
    assert!(answers.len() >= 300, "{}", answers.len());
}

#[test]
fn every_row_that_is_left_out_has_a_cause_and_no_answer() {
    let root = workspace_root();
    let names: BTreeSet<String> = rows(&root).unwrap().into_iter().map(|row| row.id).collect();
    let left_out = left_out(&root).unwrap();
    let others: BTreeSet<&str> = left_out.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(others.len(), left_out.len(), "a row is left out once");
    for row in &left_out {
        assert!(CAUSES.iter().any(|[cause, _]| *cause == row.cause), "{}: {}", row.id, row.cause);
        assert!(!names.contains(&row.id), "{} has an answer", row.id);
    }
}
