//! Environments of Python under `target/`, with tools of PyPI.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

/// Python program that fails unless all named distributions are installed.
const PROBE: &str = "import sys, importlib.metadata as m; [m.version(name) for name in sys.argv[1:]]";

/// Virtual environment of the build.
pub(crate) struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Environment `target/NAME` with these packages; makes it if it is missing.
    ///
    /// # Errors
    /// There is no Python, or `venv` or `pip` fails.
    pub(crate) fn with(root: &Path, name: &str, packages: &[&str]) -> anyhow::Result<Environment> {
        let found = Environment { folder: root.join("target").join(name) };
        if found.has(packages) {
            return Ok(found);
        }
        let Some(python) = python() else { bail!("there is no python3; {} need it", packages.join(", ")) };
        let target = found.folder.display().to_string();
        let made = output(Command::new(python).args(["-m", "venv"]).arg(&found.folder))?;
        if !made.status.success() {
            bail!("python3 -m venv {target} failed: {}", last_line(&made));
        }
        let mut pip = Command::new(found.python());
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]).args(packages);
        let installed = output(&mut pip)?;
        if !found.has(packages) {
            bail!("{} could not be installed from PyPI into {target}: {}", packages.join(", "), last_line(&installed));
        }
        Ok(found)
    }

    /// Python of the environment.
    pub(crate) fn python(&self) -> PathBuf {
        self.programs().join(if cfg!(windows) { "python.exe" } else { "python" })
    }

    /// Command with the environment's programs first in `PATH`.
    ///
    /// # Errors
    /// A path contains the separator of `PATH`.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let outside = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.programs()).chain(std::env::split_paths(&outside));
        let path: OsString = std::env::join_paths(path).context("the project's path cannot stand in PATH")?;
        let own = self.programs().join(program.as_ref()).with_extension(std::env::consts::EXE_EXTENSION);
        let mut command = Command::new(if own.is_file() { own.into_os_string() } else { program.as_ref().into() });
        command.env("PATH", path).env("VIRTUAL_ENV", &self.folder);
        Ok(command)
    }

    fn programs(&self) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" })
    }

    fn has(&self, packages: &[&str]) -> bool {
        let mut probe = Command::new(self.python());
        output(probe.args(["-c", PROBE]).args(packages)).is_ok_and(|output| output.status.success())
    }
}

/// Python of this machine.
pub(crate) fn python() -> Option<PathBuf> {
    let starts = |name: &&str| output(Command::new(name).arg("--version")).is_ok_and(|output| output.status.success());
    ["python3", "python"].into_iter().find(starts).map(PathBuf::from)
}

fn output(command: &mut Command) -> anyhow::Result<Output> {
    let shown = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).output().with_context(|| format!("{shown} does not start"))
}

/// Last line of a program's output: usually the cause of its failure.
fn last_line(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or_else(|| output.status.to_string(), |line| line.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_there_is_named() {
        let root = std::env::temp_dir().join(format!("vramlab-environment-{}", std::process::id()));
        let missing = ["../vramlab-has-no-such-folder"];
        let Err(error) = Environment::with(&root, "tools", &missing) else { panic!("it was installed") };
        let said = error.to_string();
        assert!(said.contains("python3") || said.contains(missing[0]), "{said}");
        std::fs::remove_dir_all(&root).ok();
    }
}
