//! Builds programs of the workspace and finds them.
//!
//! The whole workspace is selected: `-p` would select other features of the libraries and build each of them once more.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// Builds with these arguments of cargo (`build --example NAME`, `test --no-run --test NAME`) and returns the program that
/// the target `name` of `package` became.
///
/// # Errors
/// The build fails, or there is no such program.
pub(crate) fn build(root: &Path, args: &[&str], (package, name): (&str, &str)) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).args(["--workspace", "--message-format=json-render-diagnostics"]);
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().context("cargo does not start")?;
    if !output.status.success() {
        bail!("cargo {} failed ({})", args.join(" "), output.status);
    }
    let folder = root.join(package);
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    messages
        .lines()
        .find_map(|line| program(&serde_json::from_str(line).ok()?, &folder, name))
        .with_context(|| format!("cargo {} made no program {name} in {package}", args.join(" ")))
}

/// Returns the program of a cargo message, if it is the target `name` of the package in `folder`.
fn program(message: &Value, folder: &Path, name: &str) -> Option<PathBuf> {
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    let wanted = manifest.parent() == Some(folder) && message["target"]["name"] == name;
    wanted.then(|| message.get("executable")?.as_str().map(PathBuf::from))?
}
