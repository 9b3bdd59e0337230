//! Finds the workspace's members and their files.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A text file of the workspace.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path, relative to the workspace.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

/// The workspace's root directory, above this package.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The manifests of all members: directories below the root, and members inside them. Sorted by path.
///
/// # Errors
/// When a directory or a file cannot be read.
pub fn member_manifests(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    for directory in entries(root)?.into_iter().filter(|entry| is_member(entry)) {
        found.push(read(root, &directory.join("Cargo.toml"))?);
        for inner in entries(&directory)?.into_iter().filter(|entry| is_member(entry)) {
            found.push(read(root, &inner.join("Cargo.toml"))?);
        }
    }
    Ok(found)
}

fn is_member(directory: &Path) -> bool {
    directory.join("Cargo.toml").is_file()
}

/// All Rust files below a directory, without build output, hidden directories and members below it. Sorted by path.
///
/// # Errors
/// When a directory or a file cannot be read.
pub fn rust_files(root: &Path, directory: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    collect(root, directory, &mut found)?;
    Ok(found)
}

/// All Rust files of all members.
///
/// # Errors
/// When a directory or a file cannot be read.
pub fn all_rust_files(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    for manifest in member_manifests(root)? {
        if let Some(member) = manifest.path.parent() {
            collect(root, &root.join(member), &mut found)?;
        }
    }
    Ok(found)
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<SourceFile>) -> anyhow::Result<()> {
    for entry in entries(directory)? {
        let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if entry.is_dir() && name != "target" && !name.starts_with('.') && !is_member(&entry) {
            collect(root, &entry, found)?;
        } else if entry.is_file() && name.ends_with(".rs") {
            found.push(read(root, &entry)?);
        }
    }
    Ok(())
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("cannot list {}", directory.display());
    let listing = std::fs::read_dir(directory).with_context(context)?;
    let mut paths =
        listing.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(context)?;
    paths.sort();
    Ok(paths)
}

fn read(root: &Path, path: &Path) -> anyhow::Result<SourceFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(SourceFile { path: path.strip_prefix(root).unwrap_or(path).to_path_buf(), text })
}
