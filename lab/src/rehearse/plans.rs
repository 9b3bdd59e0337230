//! Asks the cuDNN of a Python's PyTorch for workspaces of convolutions (`plans.py`), on a card that is not there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use lab_base::error::{Error, Result};
use memcore::profile::ConvolutionCase;
use serde::Deserialize;
use serde_json::json;

use super::folder::{check_path, link_library};
use super::library;
use super::request::RequestedCard;
use crate::run::{NamedWorkspaces, WorkspaceTable, case_numbers, range_bytes};

/// The program.
const PROGRAM: &str = include_str!("plans.py");

/// Memory of the card that is asked about: cuDNN's answers do not depend on it, and every tensor fits.
const MEMORY: u64 = 64 << 40;

/// The most multiprocessors that a known card has, for one that does not say.
const MOST: u16 = 188;

/// The program's answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Named { cudnn: u32, rows: Vec<Option<(u64, u64, u64, u8)>> },
    Refused { refused: String },
}

/// Asks for the workspaces of convolutions on a card; the table lacks those for which cuDNN makes no plan without one. `python`: the interpreter that has PyTorch.
///
/// # Errors
/// [`Error::Usage`] without the library for rehearsals, or with a `TMPDIR` that the loader cannot take; [`Error::Host`] if Python cannot be started, or cannot answer, with its reason.
pub fn ask_cudnn(python: &Path, card: &RequestedCard, cases: &[ConvolutionCase]) -> Result<WorkspaceTable> {
    let asked: Vec<_> = cases.iter().filter_map(|case| Some((case, case_numbers(case)?))).collect();
    let numbers: Vec<_> = asked.iter().map(|(_, numbers)| numbers).collect();
    let output = answer(python, card, &json!({ "cases": numbers }).to_string())?;
    let cannot = |problem: String| Error::host(python.display().to_string(), problem);
    let told = output.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    match told.ok_or_else(|| cannot("it gave no answer about cuDNN".into()))? {
        Told::Refused { refused } => Err(cannot(refused)),
        Told::Named { rows, .. } if rows.len() != asked.len() => {
            Err(cannot("it gave another number of answers".into()))
        }
        Told::Named { cudnn, rows } => {
            let named = asked.iter().zip(rows).filter_map(|((case, _), row)| {
                let (forward, input, weight, ranged) = row?;
                Some(((*case).clone(), NamedWorkspaces::new([forward, input, weight], ranged)))
            });
            let rows = named.collect::<BTreeMap<_, _>>();
            if rows.is_empty() && !asked.is_empty() {
                return Err(cannot("cuDNN refused to plan without a card".into()));
            }
            Ok(WorkspaceTable::new(cudnn, range_bytes(card.multiprocessors.unwrap_or(MOST)), rows))
        }
    }
}

/// Runs the program with an input, and returns what it wrote.
fn answer(python: &Path, card: &RequestedCard, input: &str) -> Result<String> {
    let cannot = |error: std::io::Error| Error::host(python.display().to_string(), error.to_string());
    let folder = tempfile::Builder::new().prefix("vramlab-cudnn-").tempdir().map_err(cannot)?;
    check_path(folder.path())?;
    let library = link_library(&library::find()?, folder.path()).map_err(cannot)?;
    let (major, minor) = card.capability;
    let multiprocessors = card.multiprocessors.map(|count| count.to_string()).unwrap_or_default();
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .env("LD_PRELOAD", library)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CUDA_VISIBLE_DEVICES", "0")
        .env("VRAMLAB_REHEARSAL_NAME", &card.name)
        .env("VRAMLAB_REHEARSAL_MEMORY", MEMORY.to_string())
        .env("VRAMLAB_REHEARSAL_CAPABILITY", format!("{major}.{minor}"))
        .env("VRAMLAB_REHEARSAL_MULTIPROCESSORS", multiprocessors)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut stdin = child.stdin.take();
    let (written, output) = std::thread::scope(|scope| {
        // A long input and a long answer must not wait for each other.
        let writer = scope.spawn(move || stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(input.as_bytes())));
        let output = child.wait_with_output();
        (writer.join(), output)
    });
    let output = output.map_err(cannot)?;
    if output.status.success() && matches!(written, Ok(Ok(()))) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it ended without an answer");
    Err(Error::host(python.display().to_string(), last.to_string()))
}
