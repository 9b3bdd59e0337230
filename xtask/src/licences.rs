//! Licences of the libraries that the program contains, copied from their packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::artifact;

/// Prefixes of the names of licence files.
const NAMES: [&str; 4] = ["license", "licence", "copying", "notice"];

/// Lists every library with its licence, then each licence text once with its libraries.
///
/// # Errors
/// Cargo fails, or a library names no licence.
pub(crate) fn text(root: &Path, target: &str) -> anyhow::Result<String> {
    let linked = linked(root, target)?;
    let metadata: Value = serde_json::from_str(&cargo(root, &["metadata", "--format-version", "1", "--locked"])?)?;
    let (mut out, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    out += "vramlab is made of these libraries:\n\n";
    for package in metadata["packages"].as_array().context("cargo metadata names no packages")? {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let named = format!("{} {}", field("name"), field("version"));
        // Packages of the workspace have no source.
        if package["source"].is_null() || !linked.contains(&named) {
            continue;
        }
        if field("license").is_empty() && package["license_file"].is_null() {
            bail!("{named} names no licence");
        }
        let _ = writeln!(out, "{named}: {} {}", field("license"), field("repository"));
        for text in files(Path::new(field("manifest_path")))? {
            texts.entry(text).or_default().push(named.clone());
        }
    }
    for (text, of) in texts {
        let _ = write!(out, "\n{}\n{}\n\n{}\n", "=".repeat(80), of.join(", "), text.trim_end());
    }
    Ok(out)
}

/// Names and versions of the linked packages.
fn linked(root: &Path, target: &str) -> anyhow::Result<BTreeSet<String>> {
    let words =
        ["tree", "-p", "vramlab-cli", "-p", "rehearsal", "-e", "normal", "--prefix", "none", "--target", target];
    let tree = cargo(root, &words)?;
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    };
    Ok(tree.lines().filter_map(of_line).collect())
}

fn cargo(root: &Path, words: &[&str]) -> anyhow::Result<String> {
    let output = artifact::cargo(None).args(words).current_dir(root).output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", words[0], String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Licence texts in the folder of a manifest.
fn files(manifest: &Path) -> anyhow::Result<Vec<String>> {
    let folder = manifest.parent().context("a manifest without a folder")?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            found.push(String::from_utf8_lossy(&fs::read(&path)?).into_owned());
        }
    }
    found.sort();
    Ok(found)
}
