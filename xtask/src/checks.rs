//! Checks of the built program by Python scripts, if their requirements are there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Exit code of a script whose requirements are missing.
const SKIPPED: i32 = 77;

/// Environment variable with a Python that has PyTorch for CUDA.
pub(crate) const PYTHON: &str = "VRAMLAB_REHEARSAL_PYTHON";

/// Checks reports in a real browser; returns the reason if that was impossible.
///
/// # Errors
/// The build fails, or a report does not work.
pub(crate) fn reports(root: &Path, cargo: Command) -> anyhow::Result<Option<String>> {
    check(root, cargo, "reports in a browser", "scripts/report-check.py", None)
}

/// Rehearses the project's own scripts, and those in `VRAMLAB_SCRIPTS`; returns what was impossible.
///
/// # Errors
/// The build fails, or a script's figures are wrong.
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

/// Builds the program and the library that `rehearse` needs; returns the program's path.
///
/// # Errors
/// The build fails.
pub(crate) fn program(root: &Path, mut cargo: Command, name: &str) -> anyhow::Result<PathBuf> {
    let built = cargo.args(["build", "-p", "vramlab-cli", "-p", "rehearsal"]).current_dir(root).status();
    if !built.context("could not start cargo")?.success() {
        bail!("step `{name}`: the program does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("debug").join(format!("vramlab{}", std::env::consts::EXE_SUFFIX)))
}

/// Cargo that started this program, so that a `+toolchain` is kept; or the cargo of another toolchain.
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
