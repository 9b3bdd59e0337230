//! Checks of the built program by Python scripts, if their requirements are there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Exit code of a script that does not find its requirements.
const SKIPPED: i32 = 77;

/// The variable that names a Python with PyTorch for CUDA.
pub(crate) const PYTHON: &str = "VRAMLAB_REHEARSAL_PYTHON";

/// Checks reports in a real browser; returns the reason if that was impossible.
///
/// # Errors
/// A failing build; a report that does not work.
pub(crate) fn reports(root: &Path, cargo: Command) -> anyhow::Result<Option<String>> {
    check(root, cargo, "reports in a browser", "scripts/report-check.py", None)
}

/// Rehearses the project's own scripts, and those in `VRAMLAB_SCRIPTS`; returns what was impossible.
///
/// # Errors
/// A failing build; a script with wrong figures.
pub(crate) fn rehearsals(root: &Path, cargo: Command) -> anyhow::Result<Option<String>> {
    let name = "rehearsals of scripts";
    match std::env::var_os(PYTHON) {
        Some(python) => check(root, cargo, name, "scripts/rehearse/check.py", Some(python)),
        None => {
            Ok(Some(format!("{name}, own ones and those of VRAMLAB_SCRIPTS: {PYTHON} names no Python with PyTorch")))
        }
    }
}

/// Builds the program and passes it to a script.
fn check(
    root: &Path,
    cargo: Command,
    name: &str,
    script: &str,
    more: Option<OsString>,
) -> anyhow::Result<Option<String>> {
    println!("==> {name}: {script}");
    let program = program(root, cargo, name)?;
    let Ok(output) = Command::new("python3").arg(root.join(script)).arg(program).args(more).output() else {
        return Ok(Some(format!("{name}: there is no python3")));
    };
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let last = said.lines().last().unwrap_or_default();
    match output.status.code() {
        Some(0) => Ok(last.strip_prefix("skipped: ").map(|what| format!("{name}: {what}"))),
        Some(SKIPPED) => Ok(Some(format!("{name}: {last}"))),
        _ => bail!("step `{name}` failed ({})", output.status),
    }
}

/// Builds the program with what `rehearse` needs beside it; returns where it is.
///
/// # Errors
/// The build's.
pub(crate) fn program(root: &Path, mut cargo: Command, name: &str) -> anyhow::Result<PathBuf> {
    let built = cargo.args(["build", "-p", "vramlab-cli", "-p", "rehearsal"]).current_dir(root).status();
    if !built.context("could not start cargo")?.success() {
        bail!("step `{name}`: the program does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("debug").join(format!("vramlab{}", std::env::consts::EXE_SUFFIX)))
}

/// The cargo that started us, so that a `+toolchain` is kept; or that of another toolchain.
pub(crate) fn cargo(toolchain: Option<&str>) -> Command {
    match toolchain {
        None => Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
        Some(toolchain) => {
            let mut command = Command::new("rustup");
            command.args(["run", toolchain, "cargo"]);
            command
        }
    }
}
