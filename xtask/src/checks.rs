//! Checks of the built program by Python scripts, if their requirements are there.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::artifact::Vramlab;

/// Exit code of a script whose requirements are missing.
const SKIPPED: i32 = 77;

/// Environment variable with a Python that has PyTorch for CUDA.
pub(crate) const PYTHON: &str = "VRAMLAB_REHEARSAL_PYTHON";

/// Checks reports in a real browser; returns the reason if that was impossible.
///
/// # Errors
/// A report does not work.
pub(crate) fn reports(root: &Path, vramlab: &Vramlab) -> anyhow::Result<Option<String>> {
    check(root, vramlab, "reports in a browser", "scripts/report-check.py", None)
}

/// Uses `vramlab ui` in a real browser; returns the reason if that was impossible.
///
/// # Errors
/// The page does not work.
pub(crate) fn ui(root: &Path, vramlab: &Vramlab) -> anyhow::Result<Option<String>> {
    check(root, vramlab, "ui in a browser", "scripts/ui-check.py", None)
}

/// Rehearses the project's own scripts, and those in `VRAMLAB_SCRIPTS`; returns what was impossible.
///
/// # Errors
/// A script's figures are wrong.
pub(crate) fn rehearsals(root: &Path, vramlab: &Vramlab) -> anyhow::Result<Option<String>> {
    let name = "rehearsals of scripts";
    match std::env::var_os(PYTHON) {
        Some(python) => {
            let growth = "growth in rehearsals";
            check(root, vramlab, growth, "scripts/rehearse/growth.py", Some(python.clone()))?;
            let models = "networks that are not built in";
            check(root, vramlab, models, "scripts/rehearse/models.py", Some(python.clone()))?;
            let plans = "plans that are handed over";
            check(root, vramlab, plans, "scripts/rehearse/hand_over.py", Some(python.clone()))?;
            check(root, vramlab, name, "scripts/rehearse/check.py", Some(python))
        }
        None => {
            Ok(Some(format!("{name}, own ones and those of VRAMLAB_SCRIPTS: {PYTHON} names no Python with PyTorch")))
        }
    }
}

/// Passes the program to a script.
fn check(
    root: &Path,
    vramlab: &Vramlab,
    name: &str,
    script: &str,
    more: Option<OsString>,
) -> anyhow::Result<Option<String>> {
    println!("==> {name}: {script}");
    let mut python = Command::new("python3");
    python.arg(root.join(script)).arg(&vramlab.program).args(more).envs([vramlab.variable()]);
    let Ok(output) = python.output() else {
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
