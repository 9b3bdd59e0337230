//! `--hf-args FILE`: what transformers' arguments ask for, as flags that stand below the typed ones.

use std::path::Path;

use clap::ArgMatches;
use lab::hf_args::{HfArgs, Refused};
use serde_json::{Map, Value};

use super::words::given;
use crate::exit::Failure;

/// What such a file comes to.
pub(super) struct Asked {
    pub(super) fields: Map<String, Value>,
    /// What it says and a run here does not do.
    pub(super) notes: Vec<String>,
}

/// Reads the file. What is typed is not the file's matter.
pub(super) fn read(path: &Path, matches: &ArgMatches) -> Result<Asked, Failure> {
    let HfArgs { fields, refusals, left_out, unknown } = lab::hf_args::read(path)?;
    let file = path.display();
    if let Some(Refused { argument, field }) = refusals.into_iter().find(|refused| !stands(refused, matches)) {
        let instead = field.map(|field| format!("; --{field} says what to take instead")).unwrap_or_default();
        return Err(Failure::usage(format!(
            "{file}: {argument} is not represented here; `vramlab rehearse` runs it{instead}"
        )));
    }
    let mut notes: Vec<String> = left_out.into_iter().map(|what| format!("note: {file}: {what}")).collect();
    if !unknown.is_empty() {
        notes.push(format!("note: {file}: nothing was made of {}", unknown.join(", ")));
    }
    Ok(Asked { fields, notes })
}

/// Whether a flag that was typed stands for what cannot be represented.
fn stands(refused: &Refused, matches: &ArgMatches) -> bool {
    refused.field.is_some_and(|field| given(matches, &field.replace('-', "_")))
}
