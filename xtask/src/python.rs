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

/// Libraries that write a watched training's figures.
const LOGGERS: [&str; 4] = ["lightning", "mlflow", "tensorboard", "wandb"];

/// Arguments of Python for ruff, which must find nothing in any file of the repository, and for mypy over the package.
const LINTS: [&[&str]; 3] = [&["ruff", "format", "--check", "."], &["ruff", "check", "."], &["mypy"]];

/// Configuration of mypy for Python without annotations.
const UNTYPED: &str = "scripts/mypy.ini";

/// All other Python: what a run of mypy reads, and the folders in which it finds their imports. Several runs, because scripts in different
/// folders have the same name.
const GROUPS: [(&[&str], &[&str]); 19] = [
    (
        &[
            "rehearsal/python/_vramlab_rehearsal",
            "rehearsal/python/importer.py",
            "rehearsal/python/nvidia_smi.py",
            "rehearsal/python/tests",
        ],
        &["rehearsal/python", "rehearsal/python/tests"],
    ),
    (&["rehearsal/tests"], &["rehearsal/tests", "rehearsal/python"]),
    // A stand-in for PyTorch, and scripts for which it is not enough: there it is not found.
    (&["cli/tests/rehearse/torch"], &["cli/tests/rehearse"]),
    (
        &[
            "cli/tests/rehearse/attack_cases.py",
            "cli/tests/rehearse/attacks.py",
            "cli/tests/rehearse/more_attacks.py",
            "cli/tests/rehearse/outsider.py",
            "cli/tests/rehearse/periods.py",
            "cli/tests/rehearse/roles.py",
            "cli/tests/rehearse/system_attacks.py",
            "cli/tests/rehearse/training.py",
        ],
        &["cli/tests"],
    ),
    (&["cli/tests/rehearse/script.py"], &["cli/tests/rehearse"]),
    (&["cli/tests/watch"], &["cli/tests/watch"]),
    (&["lab/src/any_model/driver"], &["lab/src/any_model/driver"]),
    (&["lab/src/rehearse/plans.py"], &["lab/src/rehearse"]),
    (&["lab/training/tests/checkpoints"], &["lab/training/tests/checkpoints"]),
    (&["cli/tests/walks/folder"], &["cli/tests/walks/folder"]),
    (&["scripts/card"], &["scripts/card", "scripts/rehearse"]),
    (&["scripts/export"], &["scripts/export"]),
    (&["scripts/zoo"], &["scripts/zoo", "lab/src/any_model/driver"]),
    (&["scripts/huggingface"], &["scripts/huggingface", "scripts/record"]),
    (&["scripts/record"], &["scripts/record"]),
    (&["scripts/loop"], &["scripts/loop", "scripts/rehearse", "scripts/export", "scripts/record"]),
    (&["scripts/rehearse"], &["scripts/rehearse"]),
    (
        &[
            "scripts/browser.py",
            "scripts/glibc.py",
            "scripts/report-check.py",
            "scripts/torch-kernels.py",
            "scripts/ui-check.py",
        ],
        &["scripts"],
    ),
    (&["conformance/golden"], &["conformance/golden"]),
];

/// Exports the committed networks anew.
const EXPORTS: &str = "scripts/export/anew.py";

/// Files and folders that the tests read.
const READ: [&str; 16] = [
    "python",
    "action.yml",
    ".github/workflows/test.yml",
    "examples/memory.lock.json",
    "examples/models",
    "rehearsal/python",
    "rehearsal/tests",
    "cli/tests/rehearse",
    "cli/tests/walks/folder",
    "lab/src/any_model/driver",
    "lab/src/rehearse/plans.py",
    "conformance/golden/optimizers.py",
    "pyproject.toml",
    "scripts",
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
                GROUPS.iter().try_for_each(|(files, folders)| untyped(root, &tools.python(), files, folders))?;
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
            match LOGGERS.iter().find(|name| !imports(python, name)) {
                None => run(root, python, &unittest("test_loggers.py"), vramlab)?,
                Some(name) => {
                    skipped
                        .push(format!("figures in libraries' files: the Python of {} has no {name}", checks::PYTHON));
                }
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

/// Runs mypy over Python without annotations.
fn untyped(root: &Path, python: &Path, files: &[&str], folders: &[&str]) -> anyhow::Result<()> {
    println!("==> package for Python: mypy {}", files.join(" "));
    let path = std::env::join_paths(folders).context("a folder's name cannot stand in MYPYPATH")?;
    let mut command = Command::new(python);
    command.args(["-m", "mypy", "--no-error-summary", "--config-file", UNTYPED]).args(files);
    let status = command.current_dir(root).env("MYPYPATH", path).status().context("could not start Python")?;
    match status.success() {
        true => Ok(()),
        false => bail!("step `package for Python` failed: mypy {} ({status})", files.join(" ")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn python_below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                python_below(&path, found);
            } else if name.ends_with(".py") {
                found.push(path);
            }
        }
    }

    #[test]
    fn mypy_reads_all_python_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = Vec::new();
        for folder in
            ["python", "rehearsal", "cli", "lab", "scripts", "conformance", "benches", "xtask", "memcore", "examples"]
        {
            python_below(&root.join(folder), &mut found);
        }
        assert!(found.len() > 100, "{}", found.len());
        let read: Vec<_> =
            GROUPS.iter().flat_map(|(files, _)| *files).chain(["python"].iter()).map(|file| root.join(file)).collect();
        let missing: Vec<_> = found.iter().filter(|path| !read.iter().any(|one| path.starts_with(one))).collect();
        assert!(missing.is_empty(), "no group in xtask/src/python.rs has {missing:?}");
    }
}
