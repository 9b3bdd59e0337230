//! Tests of the package for Python, with the program, ruff and mypy, and exports made anew.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::artifact::{self, Vramlab};
use crate::checks;
use crate::environment::{Environment, python};
use crate::stamp::{Inputs, Stamp};

/// Packages for the build's environment.
const TOOLS: [&str; 3] = ["pytest", "mypy", "ruff"];

/// Names of Lightning's packages.
const LIGHTNING: [&str; 2] = ["lightning", "pytorch_lightning"];

/// Arguments of Python for ruff and mypy, both of which must find nothing.
const LINTS: [&[&str]; 3] = [&["ruff", "format", "--check", "python"], &["ruff", "check", "python"], &["mypy"]];

/// Exports the committed networks anew.
const EXPORTS: &str = "scripts/export/anew.py";

/// Files and folders that the tests read.
const READ: [&str; 5] = [
    "python",
    "pyproject.toml",
    "scripts/check-action.sh",
    "lab/imports/tests/golden/exported",
    "lab/traces/tests/golden/recordings",
];

/// Runs the package's tests, unless they have passed with the same inputs; with `full` in any case, and also those with PyTorch, and the
/// exports made anew. Returns the tests that could not run.
///
/// # Errors
/// A test fails, or a tool finds a problem.
pub(crate) fn package(root: &Path, vramlab: &Vramlab, full: bool) -> anyhow::Result<Vec<String>> {
    let Some(python) = python() else {
        return Ok(vec!["the package for Python: there is no python3".into()]);
    };
    let mut skipped = Vec::new();
    match Environment::with(root, "python-tools", &TOOLS) {
        Ok(tools) => {
            let stamp = stamp(root, vramlab, &tools.python())?;
            if !full && stamp.as_ref().is_some_and(Stamp::is_set) {
                println!("==> package for Python: unchanged since it passed");
            } else {
                LINTS.iter().try_for_each(|words| run(root, &tools.python(), &module(words), vramlab))?;
                run(root, &tools.python(), &module(&["pytest", "--quiet"]), vramlab)?;
                stamp.map_or(Ok(()), |stamp| stamp.set())?;
            }
        }
        Err(reason) => {
            skipped.push(format!("ruff, mypy and the tests of the pytest fixture: {reason:#}"));
            run(root, &python, &unittest("test_answers.py"), vramlab)?;
        }
    }
    match std::env::var_os(checks::PYTHON) {
        Some(python) if full => {
            let python = Path::new(&python);
            for tests in ["test_torch.py", "test_lifetimes.py"] {
                run(root, python, &unittest(tests), vramlab)?;
            }
            run(root, python, &[EXPORTS.into(), (&vramlab.program).into()], vramlab)?;
            match LIGHTNING.iter().any(|name| imports(python, name)) {
                true => run(root, python, &unittest("test_lightning.py"), vramlab)?,
                false => skipped.push(format!("the callback in Lightning: the Python of {} has none", checks::PYTHON)),
            }
        }
        _ if full => skipped.push(format!("the package beside PyTorch: {} names no Python with it", checks::PYTHON)),
        _ => skipped.push("the package beside PyTorch: --full runs it".into()),
    }
    Ok(skipped)
}

/// Like [`package`], but builds the program and prints the skipped tests.
///
/// # Errors
/// The program does not build; else as [`package`].
pub(crate) fn alone(root: &Path, full: bool) -> anyhow::Result<()> {
    let built = artifact::build(root, &["build", "-p", "vramlab-cli", "-p", "rehearsal"])?;
    let skipped = package(root, &built.vramlab()?, full)?;
    skipped.iter().for_each(|what| println!("==> skipped: {what}"));
    Ok(())
}

/// The stamp of the tests that need no PyTorch; `None` where not everything that they depend on is known.
fn stamp(root: &Path, vramlab: &Vramlab, python: &Path) -> anyhow::Result<Option<Stamp>> {
    let Some(inputs) = Inputs::of_this_machine() else { return Ok(None) };
    let inputs = inputs.output(python, &["--version"]).output(python, &["-m", "pip", "list", "--format", "freeze"]);
    let inputs = inputs.files(&vramlab.program)?.files(&vramlab.library)?;
    let inputs = READ.iter().try_fold(inputs, |inputs, path| inputs.files(&root.join(path)))?;
    Ok(Some(inputs.stamp(root, "python")))
}

fn module(words: &[&str]) -> Vec<OsString> {
    std::iter::once("-m").chain(words.iter().copied()).map(Into::into).collect()
}

fn unittest(file: &str) -> Vec<OsString> {
    module(&["unittest", "discover", "--start-directory", "python/tests", "--pattern", file])
}

fn imports(python: &Path, module: &str) -> bool {
    let words = ["-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)", module];
    Command::new(python).args(words).status().is_ok_and(|status| status.success())
}

/// Runs Python with these arguments; it finds the package and the program.
fn run(root: &Path, python: &Path, words: &[OsString], vramlab: &Vramlab) -> anyhow::Result<()> {
    let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    println!("==> package for Python: python {}", shown.join(" "));
    let mut command = Command::new(python);
    let outside = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let path = std::iter::once(root.join("python")).chain(std::env::split_paths(&outside));
    let path = std::env::join_paths(path).context("the project's path cannot stand in PYTHONPATH")?;
    command
        .args(words)
        .current_dir(root)
        .env("PYTHONPATH", path)
        .env("VRAMLAB_BINARY", &vramlab.program)
        .envs([vramlab.variable()]);
    let status = command.env("PYTHONDONTWRITEBYTECODE", "1").status().context("could not start Python")?;
    if !status.success() {
        bail!("step `package for Python` failed: python {} ({status})", shown.join(" "));
    }
    Ok(())
}
