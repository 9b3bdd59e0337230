//! Runs the program as a user does.
#![allow(dead_code)] // each test file uses its part

#[cfg(target_os = "linux")]
pub(crate) mod kept;
#[cfg(target_os = "linux")]
pub(crate) mod rehearsal;

use std::fs::File;
use std::path::Path;

use assert_cmd::Command;
use flate2::read::GzDecoder;
use serde_json::Value;

/// Result of a run.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// An environment of Python without packages: answers do not depend on what is installed on the machine that runs the tests.
pub(crate) const NO_PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/common/no_packages");

/// The variable that keeps the program from starting a Python for a network.
pub(crate) const ONLY_BUILT_IN: &str = "VRAMLAB_ONLY_BUILT_IN";

/// Splits a command into words, as a shell does with double quotes.
pub(crate) fn words(typed: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in typed.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The program in 80 columns, without the caller's settings for colours and without packages of Python.
pub(crate) fn vramlab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.env_remove("NO_COLOR").env_remove("COLUMNS").env("TERM", "xterm");
    command.env("VIRTUAL_ENV", NO_PACKAGES).env_remove("PYTHONPATH");
    // Nor on a Python that builds what is not built in.
    command.env(ONLY_BUILT_IN, "1");
    command
}

pub(crate) fn run(args: &[&str]) -> Ran {
    ran(vramlab().args(args), args)
}

/// Runs a command, which must not panic.
pub(crate) fn ran(command: &mut Command, args: &[&str]) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
    assert!(!ran.stderr.contains("panicked"), "{args:?}: {}", ran.stderr);
    ran
}

/// Runs the program, which must succeed. Returns its stdout.
pub(crate) fn done(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran.stdout
}

/// Runs the program, which must succeed and write only JSON to stdout.
pub(crate) fn json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json", "-"]).collect();
    serde_json::from_str(&done(&args)).unwrap()
}

/// Runs the program, which must end with this code, print nothing to stdout and one error to stderr. Returns the error's first line.
pub(crate) fn refused(code: i32, args: &[&str]) -> String {
    error_of(code, args, run(args))
}

/// Returns the first line of the one error of a run that ended with this code and printed nothing to stdout.
pub(crate) fn error_of(code: i32, args: &[&str], ran: Ran) -> String {
    assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{args:?}");
    assert_eq!(ran.stderr.matches("error:").count(), 1, "{args:?}: {}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    line.trim_start_matches("error: ").to_string()
}

/// Checks that no line is wider than 80 columns.
pub(crate) fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

/// Unpacks an export of lab's recordings into a folder, as `NAME.pt2`; returns its path.
pub(crate) fn unpacked_export(name: &str, folder: &Path) -> String {
    let gz = format!("{}/../lab/imports/tests/golden/exported/{name}.pt2.gz", env!("CARGO_MANIFEST_DIR"));
    let path = folder.join(format!("{name}.pt2"));
    let mut packed = GzDecoder::new(File::open(gz).unwrap());
    std::io::copy(&mut packed, &mut File::create(&path).unwrap()).unwrap();
    path.display().to_string()
}
