//! `docs/accuracy.md` agrees with the measured figures, and with what the program said of them.

use std::collections::BTreeSet;
use std::fs;

use xtask::files::workspace_root;
use xtask::published::{
    CAUSES, DOCUMENT, FITTED, NOTHING, answers, document, fitted, left_out, own_context, rows, tried_halves, within,
    workspaces,
};

#[test]
fn no_row_leaves_its_interval_unnoticed() {
    let root = workspace_root();
    let made = document(&root).unwrap();
    let there = fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    assert!(there == made, "{DOCUMENT}: run `cargo xtask published`");
    assert!(!made.contains("said to fit"), "a training that ran out of memory is said to fit");
    assert!(!made.contains(NOTHING), "xtask/published/outside.tsv: a row is outside, and nobody looked why");
}

#[test]
fn the_bands_in_use_are_those_that_the_rows_give() {
    let root = workspace_root();
    let there = fs::read_to_string(root.join(FITTED)).unwrap();
    assert!(there == fitted(&root).unwrap(), "{FITTED}: run `cargo xtask published`");
}

#[test]
fn every_workspace_of_an_h100_is_inside_what_an_answer_states() {
    let found = workspaces(&workspace_root()).unwrap();
    let [equal, near, _] = within(&found);
    assert_eq!(found.len(), 972);
    assert!(equal >= 583 && near >= 781, "{equal} are equal, {near} within 512 bytes");
    let outside: Vec<_> = found.iter().filter(|one| !one.is_inside()).collect();
    assert!(outside.is_empty(), "{outside:?}");
}

#[test]
fn every_half_of_the_sources_fits_bands_that_hold_for_the_other_half() {
    let tried = tried_halves(&workspace_root()).unwrap();
    assert!(tried.len() >= 70, "{}", tried.len());
    for half in tried {
        assert!(half.inside >= 97.0 && half.above <= 1.0, "{half:?}");
    }
}

#[test]
fn the_context_of_a_source_is_that_of_every_second_of_its_perceptrons() {
    let root = workspace_root();
    let (rows, answers) = (rows(&root).unwrap(), answers(&root).unwrap());
    let context = own_context(&rows, &answers);
    let perceptrons = rows.iter().filter(|row| row.id.starts_with("gpumemnet-mlp-"));
    assert!(perceptrons.clone().count() > 200);
    assert!(perceptrons.into_iter().all(|row| row.beside == Some(context)), "{context:?}");
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
