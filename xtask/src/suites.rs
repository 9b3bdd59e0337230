//! The conformance suites: thousands of small trials each. One process runs a suite in seconds; one process per trial would take minutes.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::artifact::{Built, Program};
use crate::stamp::{Inputs, Stamp};

/// Names of test programs that are suites.
const NAMES: [&str; 3] = ["reference", "meta", "conformance"];

/// What nextest runs: all others.
pub(crate) const OTHERS: &str = "not (binary(reference) or binary(meta) or binary(conformance))";

/// Runs every suite that has not passed with the same inputs; with `again`, every one.
///
/// # Errors
/// A trial fails.
pub(crate) fn run_all(root: &Path, built: &Built, environment: &[(&str, OsString)], again: bool) -> anyhow::Result<()> {
    let programs = built.programs("test");
    for suite in programs.iter().filter(|program| NAMES.contains(&program.name.as_str())) {
        let folder = suite.folder.strip_prefix(root).unwrap_or(&suite.folder).display();
        run(root, suite, &format!("conformance: {} of {folder}", suite.name), &[], environment, again)?;
    }
    Ok(())
}

/// Runs one suite, unless it has passed with the same inputs: its program, the files of its member, the arguments, the variables and
/// the machine with its drivers and compilers.
///
/// # Errors
/// A trial fails.
pub(crate) fn run(
    root: &Path,
    suite: &Program,
    what: &str,
    args: &[&str],
    environment: &[(&str, OsString)],
    again: bool,
) -> anyhow::Result<()> {
    let stamp = inputs(suite)?.map(|inputs| inputs.value(args).value(environment).stamp(root, "suite"));
    if !again && stamp.as_ref().is_some_and(Stamp::is_set) {
        println!("==> {what}: unchanged since it passed");
        return Ok(());
    }
    println!("==> {what}");
    let mut command = Command::new(&suite.path);
    command.arg("--quiet").args(args).envs(environment.iter().cloned());
    // As cargo starts a test.
    command.current_dir(&suite.folder).env("CARGO_MANIFEST_DIR", &suite.folder);
    let status = command.status().with_context(|| suite.path.display().to_string())?;
    if !status.success() {
        bail!("step `{what}` failed ({status})");
    }
    stamp.map_or(Ok(()), |stamp| stamp.set())
}

/// What every run of a suite depends on; `None` if the versions of drivers are not known.
fn inputs(suite: &Program) -> anyhow::Result<Option<Inputs>> {
    let Some(inputs) = Inputs::of_this_machine() else { return Ok(None) };
    Ok(Some(inputs.files(&suite.path)?.files(&suite.folder)?))
}
