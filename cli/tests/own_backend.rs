//! A program of its own table of backends.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use lab::backends::{About, Entry};
use memcore::backend::Meta;
use serde_json::Value;

static MINE: [Entry; 1] = [Entry {
    name: "mine",
    count: || Ok(1),
    open: |_| Ok(Arc::new(Meta::default())),
    about: |_| About::default(),
    memory: Vec::new,
}];

#[test]
fn a_backend_of_ones_own_is_in_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let run = |backend: &str| {
        let words = ["vramlab", "-q", "train", "--model", "linear", "--steps", "1", "--backend", backend, "--json"];
        cli::run(words.map(Into::into).into_iter().chain([file.clone().into()]).collect(), &MINE)
    };
    assert_eq!(run("mine"), ExitCode::SUCCESS);
    let found: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&found["settings"]["backend"], &found["parameters"]), (&"mine".into(), &11.into()));
    assert_eq!(run("cpu"), ExitCode::from(2), "the build has it, the table has not");
}
