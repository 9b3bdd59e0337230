//! The conformance suites: thousands of small trials each. One process runs a suite in seconds; one process per trial would take minutes.
//!
//! The wgpu backend's suite spends most of its time in the driver's compiler. SwiftShader compiles most kernels in a tenth of the time that lavapipe takes.
//! It takes minutes for attention with several rows a thread, which many heads get, and is slow at very many queries. So each driver gets the trials that it
//! is quick at.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::iter;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};

use crate::artifact::{Built, Program};
use crate::software_gpu::has_card;
use crate::stamp::{Inputs, Stamp};

/// Names of test programs that are suites.
const NAMES: [&str; 3] = ["reference", "meta", "conformance"];

/// What nextest runs: all others. A library of such a name has tests of its own, of which one takes minutes: `--full` runs it.
pub(crate) const OTHERS: &str = "not (kind(test) & (binary(reference) | binary(meta) | binary(conformance)) | test(under_every_profile_results_and_gradients))";

/// A part of a suite: what its name adds, the arguments that select its trials, and variables.
type Part = (String, Vec<&'static str>, Vec<(&'static str, OsString)>);

/// A suite, or some of its trials.
pub(crate) struct Suite<'a> {
    pub(crate) program: &'a Program,
    /// What it is called in the output.
    pub(crate) what: String,
    /// Arguments that select trials.
    pub(crate) args: Vec<&'static str>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

/// Runs every suite that has not passed with the same inputs; with `whole`, every one. `swiftshader`: its driver's description, for the trials of the
/// wgpu backend but [`SLOW`]. Lavapipe runs the others, or all where `whole` asks for that or SwiftShader is missing.
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
    let mut suites = Vec::new();
    for program in programs.iter().filter(|program| NAMES.contains(&program.name.as_str())) {
        let folder = program.folder.strip_prefix(root).unwrap_or(&program.folder);
        let by_driver = folder == Path::new("backend-wgpu");
        for (name, args, variables) in parts(swiftshader.filter(|_| by_driver), whole) {
            let what = format!("conformance: {} of {}{name}", program.name, folder.display());
            let environment = [environment, &variables].concat();
            suites.push((!by_driver, Suite { program, what, args, environment }));
        }
    }
    // What takes longest begins first.
    suites.sort_by_key(|(later, _)| *later);
    run(root, suites.into_iter().map(|(_, suite)| suite).collect(), whole)
}

/// Parts of names of trials that SwiftShader is slow at.
const SLOW: [&str; 2] = ["many_heads", "many_queries"];

/// Parts of names of trials that lavapipe takes half a minute or more for, each: very many heads with other workspaces than were asked for, and their gradients
/// three times over. The same heads without those, the same with fewer heads, and all of it on the other backends are trials that always run.
const SLOWEST: [&str; 4] = [
    "::many_heads::",
    "::mask_grad_many_heads::",
    "determinism::attention_grad::f32::many_heads",
    "determinism::attention_grad::f32::mask_grad_many_heads",
];

/// The parts of a suite for its drivers.
fn parts(swiftshader: Option<&Path>, whole: bool) -> Vec<Part> {
    let all = (String::new(), Vec::new(), Vec::new());
    let Some(driver) = swiftshader else { return vec![all] };
    let others = SLOW.iter().flat_map(|name| ["--skip", name]).collect();
    let quick = (" on SwiftShader".into(), others, vec![("VK_DRIVER_FILES", driver.into())]);
    let but_slowest = SLOWEST.iter().flat_map(|name| ["--skip", name]);
    let slow =
        SLOW.map(|name| (format!(", {name}"), iter::once(name).chain(but_slowest.clone()).collect(), Vec::new()));
    let rest = if whole { vec![all] } else { slow.to_vec() };
    [quick].into_iter().chain(rest).collect()
}

/// Runs suites side by side, one for each core, since a suite keeps one core busy; one by one where there is a card, which they would share. What passed with
/// the same inputs is not run again unless `again`: the program, the files of its member, the arguments, the variables, and the machine with its drivers.
///
/// # Errors
/// A trial fails. No further suite begins then.
pub(crate) fn run(root: &Path, suites: Vec<Suite<'_>>, again: bool) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(VecDeque::from(suites));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        while let Some(suite) = next() {
            if let Err(error) = run_one(root, &suite, again) {
                waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
                return Err(error);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..if has_card() { 1 } else { cores }).map(|_| scope.spawn(work)).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("no suite panics")).collect();
        ended.into_iter().collect()
    })
}

/// Runs one suite, and prints what it printed when it has ended.
fn run_one(root: &Path, suite: &Suite<'_>, again: bool) -> anyhow::Result<()> {
    let Suite { program, what, args, environment } = suite;
    let stamp = inputs(program)?.map(|inputs| inputs.value(args).value(environment).stamp(root, "suite"));
    if !again && stamp.as_ref().is_some_and(Stamp::is_set) {
        println!("==> {what}: unchanged since it passed");
        return Ok(());
    }
    println!("==> {what}: begins");
    let mut command = Command::new(&program.path);
    command.arg("--quiet").args(args).envs(environment.iter().cloned());
    // As cargo starts a test.
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    let output = command.output().with_context(|| program.path.display().to_string())?;
    let said = [output.stdout, output.stderr].concat();
    println!("==> {what}\n{}", String::from_utf8_lossy(&said).trim_end());
    if !output.status.success() {
        bail!("step `{what}` failed ({})", output.status);
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
    use std::iter;
    use std::path::Path;

    use super::{SLOWEST, parts};

    #[test]
    fn two_drivers_share_a_suite_and_leave_out_what_full_adds() {
        let shared = parts(Some(Path::new("driver.json")), false);
        let selections: Vec<_> = shared.iter().map(|(_, args, _)| args.as_slice()).collect();
        let skipped = ["--skip", "many_heads", "--skip", "many_queries"];
        let but_slowest =
            |name| -> Vec<_> { iter::once(name).chain(SLOWEST.iter().flat_map(|name| ["--skip", name])).collect() };
        let (heads, queries) = (but_slowest("many_heads"), but_slowest("many_queries"));
        assert_eq!(selections, [skipped.as_slice(), &heads, &queries]);
        assert_eq!(shared[0].2, [("VK_DRIVER_FILES", "driver.json".into())]);
        assert!(shared[1..].iter().all(|(_, _, variables)| variables.is_empty()));
    }

    #[test]
    fn one_driver_runs_all_trials() {
        for (driver, whole) in [(None, false), (None, true), (Some(Path::new("driver.json")), true)] {
            let (_, args, variables) = parts(driver, whole).pop().unwrap();
            assert!(args.is_empty() && variables.is_empty());
        }
    }
}
