//! Builds programs of the workspace and finds them.
//!
//! The whole workspace is selected: `-p` would select other features of the libraries and build each of them once more.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use serde_json::Value;

/// Arguments of cargo that build every test program, and with them the programs and libraries that tests start. Benchmarks and examples are built to be linted.
/// `--lib` would build unit tests also where a manifest says that there are none, and with them the whole library once more.
const TESTS: [&str; 6] = ["test", "--no-run", "--workspace", "--tests", "--benches", "--examples"];

/// Clippy in the compiler's place, once [`lint_what_is_built`] was called.
static LINTER: OnceLock<PathBuf> = OnceLock::new();

/// What a build made, as cargo says.
pub(crate) struct Built {
    root: PathBuf,
    /// One message for each target, whether it was built now or was there.
    messages: Vec<Value>,
}

/// A program of a workspace's member.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The target's name.
    pub(crate) name: String,
    /// The member's folder.
    pub(crate) folder: PathBuf,
}

/// The command line and the library that its `rehearse` loads.
pub(crate) struct Vramlab {
    pub(crate) program: PathBuf,
    pub(crate) library: PathBuf,
}

impl Vramlab {
    /// The variable by which the program finds the library: a `cargo build` of long ago may have left another beside it.
    pub(crate) fn variable(&self) -> (&'static str, &Path) {
        ("VRAMLAB_REHEARSAL_LIBRARY", &self.library)
    }
}

/// Cargo that started this program, so that a `+toolchain` is kept; or the cargo of another toolchain.
pub(crate) fn cargo(toolchain: Option<&str>) -> Command {
    match toolchain {
        None => {
            let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            if let Some(linter) = LINTER.get() {
                // As `cargo clippy -- -D warnings` sets them.
                command.env("RUSTC_WORKSPACE_WRAPPER", linter).env("CLIPPY_ARGS", DENY_WARNINGS);
            }
            command
        }
        Some(toolchain) => {
            let mut command = Command::new("rustup");
            command.args(["run", toolchain, "cargo"]);
            command
        }
    }
}

/// Words of `-D warnings`, each with clippy's own separator.
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Lets clippy compile what is built from here on. It is the compiler with more lints, so that one build makes the programs and lints them; `cargo clippy`
/// would compile every dependency once more. Returns whether clippy is there.
pub(crate) fn lint_what_is_built() -> bool {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Some(sysroot) = sysroot.ok().filter(|output| output.status.success()) else { return false };
    let driver = format!("clippy-driver{}", std::env::consts::EXE_SUFFIX);
    let linter = Path::new(String::from_utf8_lossy(&sysroot.stdout).trim()).join("bin").join(driver);
    linter.exists() && LINTER.set(linter).is_ok()
}

/// The folder in which cargo builds, an absolute path.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // It fails for an empty path alone, which cargo refuses.
    std::path::absolute(&target).unwrap_or(target)
}

/// Builds with these arguments of cargo.
///
/// # Errors
/// The build fails.
pub(crate) fn build(root: &Path, args: &[&str]) -> anyhow::Result<Built> {
    let mut command = cargo(None);
    command.args(args).arg("--message-format=json-render-diagnostics");
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().context("cargo does not start")?;
    if !output.status.success() {
        bail!("cargo {} failed ({})", args.join(" "), output.status);
    }
    let text = String::from_utf8(output.stdout).context("cargo's messages")?;
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok(Built { root: root.to_path_buf(), messages })
}

/// Builds all tests.
///
/// # Errors
/// The build fails.
pub(crate) fn tests(root: &Path) -> anyhow::Result<Built> {
    build(root, &TESTS)
}

impl Built {
    /// The programs of this kind of target: `bin`, `example`, or `test` for those in `tests/`. Unit tests are not among them.
    pub(crate) fn programs(&self, kind: &str) -> Vec<Program> {
        let of_kind = |message: &&Value| {
            let unit_test = message["profile"]["test"] == true && kind != "test";
            message["target"]["kind"][0] == kind && !unit_test
        };
        self.messages.iter().filter(of_kind).filter_map(program).collect()
    }

    /// The program `name` of the member in `folder`, of this kind of target.
    ///
    /// # Errors
    /// It was not built.
    pub(crate) fn find(&self, kind: &str, folder: &str, name: &str) -> anyhow::Result<Program> {
        let folder = self.root.join(folder);
        let found = self.programs(kind).into_iter().find(|program| program.folder == folder && program.name == name);
        found.with_context(|| format!("cargo made no program {name} in {}", folder.display()))
    }

    /// The path of such a program.
    ///
    /// # Errors
    /// It was not built.
    pub(crate) fn program(&self, kind: &str, folder: &str, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.find(kind, folder, name)?.path)
    }

    /// The command line with its library.
    ///
    /// # Errors
    /// One of them was not built.
    pub(crate) fn vramlab(&self) -> anyhow::Result<Vramlab> {
        let libraries = self.messages.iter().filter(|message| message["target"]["name"] == "vramlab_rehearsal");
        let mut files = libraries.filter_map(|message| message["filenames"].as_array()).flatten();
        let library = files.find_map(|file| file.as_str().filter(|file| file.ends_with(std::env::consts::DLL_SUFFIX)));
        let library = library.context("cargo made no library of rehearsals")?.into();
        Ok(Vramlab { program: self.program("bin", "cli", "vramlab")?, library })
    }
}

/// The program that a message of cargo names.
fn program(message: &Value) -> Option<Program> {
    let path = message["executable"].as_str()?.into();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Program { path, name: message["target"]["name"].as_str()?.into(), folder })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::Built;

    fn message(folder: &str, kind: &str, name: &str, test: bool, file: &str) -> serde_json::Value {
        json!({"reason": "compiler-artifact", "manifest_path": format!("/my files/{folder}/Cargo.toml"), "profile": {"test": test},
            "target": {"kind": [kind], "name": name}, "filenames": [format!("/t/{file}")], "executable": format!("/t/{file}")})
    }

    #[test]
    fn programs_are_told_from_their_unit_tests() {
        let mut library = message("rehearsal", "cdylib", "vramlab_rehearsal", false, "deps/x");
        library["filenames"] =
            json!(["/t/libvramlab_rehearsal.rlib", format!("/t/deps/lib{}", std::env::consts::DLL_SUFFIX)]);
        let messages = vec![
            message("cli", "bin", "vramlab", true, "deps/vramlab-1"),
            message("cli", "bin", "vramlab", false, "vramlab"),
            message("lab", "test", "it", true, "deps/it-1"),
            message("cli", "test", "it", true, "deps/it-2"),
            json!({"reason": "build-finished", "success": true}),
            library,
        ];
        let built = Built { root: "/my files".into(), messages };
        let made = built.vramlab().unwrap();
        assert_eq!(made.program, Path::new("/t/vramlab"));
        assert!(made.library.starts_with("/t/deps"), "{}", made.library.display());
        assert_eq!(built.program("test", "cli", "it").unwrap(), Path::new("/t/deps/it-2"));
        assert_eq!(built.programs("test").len(), 2);
        assert!(built.program("example", "cli", "it").is_err());
    }
}
