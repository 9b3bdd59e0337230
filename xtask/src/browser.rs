//! Reports in a real browser: `scripts/report-check.py`, where there is one.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// What the script ends with when it finds no browser.
const SKIPPED: i32 = 77;

/// Builds the program and lets the script use its reports; returns why that could not be.
///
/// # Errors
/// The build's; a report that does not do what it should.
pub(crate) fn check(root: &Path, mut cargo: Command) -> anyhow::Result<Option<String>> {
    println!("==> reports in a browser: scripts/report-check.py");
    let built = cargo.args(["build", "-p", "cli"]).current_dir(root).status();
    if !built.context("could not start cargo")?.success() {
        bail!("step `reports in a browser`: the program does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let script = root.join("scripts/report-check.py");
    let program = target.join("debug").join(format!("vramlab{}", std::env::consts::EXE_SUFFIX));
    let Ok(output) = Command::new("python3").arg(script).arg(program).output() else {
        return Ok(Some("reports in a browser: there is no python3".into()));
    };
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => Ok(None),
        Some(SKIPPED) => Ok(Some(format!("reports in a browser: {}", said.lines().last().unwrap_or_default()))),
        _ => bail!("step `reports in a browser` failed ({})", output.status),
    }
}
