//! The conformance suites: thousands of small trials each. One process runs a suite in seconds; one process per trial would take minutes.
//!
//! The wgpu backend's suite spends nearly all of its time in the driver's compiler. SwiftShader compiles most kernels in a tenth of the time that
//! lavapipe takes, but takes minutes for one tall tile of attention. So each driver gets the trials that it is quick at.

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

/// A part of a suite: what its name adds, the arguments that select its trials, and variables.
type Part = (&'static str, &'static [&'static str], Vec<(&'static str, OsString)>);

/// Runs every suite that has not passed with the same inputs; with `again`, every one. `swiftshader`: its driver's description, for the trials of the
/// wgpu backend but those of attention. Lavapipe runs the others, or all where `whole` asks for that or SwiftShader is missing.
///
/// # Errors
/// A trial fails.
pub(crate) fn run_all(
    root: &Path,
    built: &Built,
    environment: &[(&'static str, OsString)],
    swiftshader: Option<&Path>,
    whole: bool,
) -> anyhow::Result<()> {
    let programs = built.programs("test");
    for suite in programs.iter().filter(|program| NAMES.contains(&program.name.as_str())) {
        let folder = suite.folder.strip_prefix(root).unwrap_or(&suite.folder);
        let by_driver = folder == Path::new("backend-wgpu");
        for (name, args, variables) in parts(swiftshader.filter(|_| by_driver), whole) {
            let environment = [environment, &variables].concat();
            run(
                root,
                suite,
                &format!("conformance: {} of {}{name}", suite.name, folder.display()),
                args,
                &environment,
                whole,
            )?;
        }
    }
    Ok(())
}

/// The parts of a suite for its drivers.
fn parts(swiftshader: Option<&Path>, whole: bool) -> Vec<Part> {
    let Some(driver) = swiftshader else { return vec![("", &[], Vec::new())] };
    let quick = (" on SwiftShader", ["--skip", "attention"].as_slice(), vec![("VK_DRIVER_FILES", driver.into())]);
    let rest =
        if whole { ("", [].as_slice(), Vec::new()) } else { (", attention", ["attention"].as_slice(), Vec::new()) };
    vec![quick, rest]
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parts;

    #[test]
    fn two_drivers_share_a_suite_and_leave_no_trial_out() {
        let shared = parts(Some(Path::new("driver.json")), false);
        let selections: Vec<_> = shared.iter().map(|(_, args, _)| *args).collect();
        assert_eq!(selections, [["--skip", "attention"].as_slice(), &["attention"]]);
        assert_eq!(shared[0].2, [("VK_DRIVER_FILES", "driver.json".into())]);
        assert!(shared[1].2.is_empty());
    }

    #[test]
    fn one_driver_runs_all_trials() {
        for (driver, whole) in [(None, false), (None, true), (Some(Path::new("driver.json")), true)] {
            let (_, args, variables) = parts(driver, whole).pop().unwrap();
            assert!(args.is_empty() && variables.is_empty());
        }
    }
}
