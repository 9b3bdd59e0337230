//! Tells the program which commit it is built from, where that is known.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=VRAMLAB_COMMIT");
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit() {
        Some(commit) => format!("{package} ({commit})"),
        None => package,
    };
    println!("cargo::rustc-env=VRAMLAB_VERSION={version}");
}

/// What `VRAMLAB_COMMIT` says; else, of an optimized build, what git says. A build for development is not made anew for every commit.
fn commit() -> Option<String> {
    let named = std::env::var("VRAMLAB_COMMIT").ok().filter(|commit| !commit.is_empty());
    if named.is_some() || std::env::var("PROFILE").as_deref() != Ok("release") {
        return named;
    }
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (!text.is_empty()).then_some(text)
}
