//! The package for Python: its tests beside the program, and what ruff and mypy say of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::checks;

/// What is installed into an environment of the build's own.
const TOOLS: [&str; 3] = ["pytest", "mypy", "ruff"];

/// What the tools must say nothing about.
const LINTS: [&[&str]; 3] = [&["ruff", "format", "--check", "python"], &["ruff", "check", "python"], &["mypy"]];

/// Runs the package's tests; with `full` also those with PyTorch. Returns what could not be.
///
/// # Errors
/// The program's build; a test that fails; what a tool finds.
pub(crate) fn package(root: &Path, cargo: Command, full: bool) -> anyhow::Result<Vec<String>> {
    let Some(python) = python() else {
        return Ok(vec!["the package for Python: there is no python3".into()]);
    };
    let program = checks::program(root, cargo, "package for Python")?;
    let mut skipped = Vec::new();
    match tools(root, &python) {
        Ok(tools) => {
            LINTS.iter().try_for_each(|words| run(root, &tools, &module(words), &program))?;
            run(root, &tools, &module(&["pytest", "--quiet"]), &program)?;
        }
        Err(reason) => {
            skipped.push(format!("ruff, mypy and the tests of the pytest fixture: {reason}"));
            run(root, &python, &unittest("test_answers.py"), &program)?;
        }
    }
    match std::env::var_os(checks::PYTHON) {
        Some(python) if full => run(root, Path::new(&python), &unittest("test_torch.py"), &program)?,
        _ if full => skipped.push(format!("the package beside PyTorch: {} names no Python with it", checks::PYTHON)),
        _ => skipped.push("the package beside PyTorch: --full runs it".into()),
    }
    Ok(skipped)
}

/// The same for who works on it: what was skipped is told.
///
/// # Errors
/// As [`package`].
pub(crate) fn alone(root: &Path, full: bool) -> anyhow::Result<()> {
    let skipped = package(root, checks::cargo(None), full)?;
    skipped.iter().for_each(|what| println!("==> skipped: {what}"));
    Ok(())
}

fn module(words: &[&str]) -> Vec<OsString> {
    std::iter::once("-m").chain(words.iter().copied()).map(Into::into).collect()
}

fn unittest(file: &str) -> Vec<OsString> {
    module(&["unittest", "discover", "--start-directory", "python/tests", "--pattern", file])
}

/// Runs Python on these words, with the package and the program where they are found.
fn run(root: &Path, python: &Path, words: &[OsString], program: &Path) -> anyhow::Result<()> {
    let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    println!("==> package for Python: python {}", shown.join(" "));
    let mut command = Command::new(python);
    command.args(words).current_dir(root).env("PYTHONPATH", root.join("python")).env("VRAMLAB_BINARY", program);
    let status = command.env("PYTHONDONTWRITEBYTECODE", "1").status().context("could not start Python")?;
    if !status.success() {
        bail!("step `package for Python` failed: python {} ({status})", shown.join(" "));
    }
    Ok(())
}

fn python() -> Option<PathBuf> {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success()).then(|| "python3".into())
}

/// An environment with the tools, made where it is missing.
fn tools(root: &Path, python: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/python-tools");
    let own = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let quiet = |mut command: Command| command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let there = || {
        let mut command = Command::new(&own);
        command.args(["-c", &format!("import {}", TOOLS.join(", "))]).stderr(Stdio::null());
        quiet(command).is_ok_and(|status| status.success())
    };
    if there() {
        return Ok(own);
    }
    let mut make = Command::new(python);
    make.args(["-m", "venv"]).arg(&folder);
    let mut install = Command::new(&own);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(TOOLS);
    // A failure to start one is a failure to install: the probe says the same.
    let _ = (quiet(make), quiet(install));
    if there() { Ok(own) } else { Err(format!("{} could not be installed", TOOLS.join(", "))) }
}
